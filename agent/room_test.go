package agent

import "testing"

// TestRoomMPTCP: 4096 were seen in a guest of 768 MiB.
func TestRoomMPTCP(t *testing.T) {
	for memory, want := range map[int64]int{0: 4, 1: 4, 64: 256, 65: 512, 256: 1024, 768: 4096, 1024: 4096, 1025: 8192, 3072: 16384, 1 << 20: 262144} {
		if got := roomMPTCP(memory << 20); got != want {
			t.Errorf("%d MiB: room for %d, want %d", memory, got, want)
		}
	}
}
