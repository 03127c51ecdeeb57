package paths

import (
	"testing"

	"golang.org/x/sys/unix"
)

// TestRoomBeyond: a kernel that gave no packet as much room as one takes is not late.
func TestRoomBeyond(t *testing.T) {
	for name, c := range map[string]struct {
		window, packet uint32
		unsent         int
		room           bool
	}{
		"none":                   {0, 1448, 5000, false},
		"less than a packet":     {1000, 1448, 5000, false},
		"a packet":               {1448, 1448, 5000, true},
		"all of what is less":    {1000, 1448, 1000, true},
		"nothing waits for room": {64 << 10, 1448, 0, false},
	} {
		t.Run(name, func(t *testing.T) {
			if room := hasRoom(&unix.TCPInfo{Snd_wnd: c.window, Snd_mss: c.packet}, c.unsent); room != c.room {
				t.Errorf("it has room: %v", room)
			}
		})
	}
}
