package inlet

import (
	"net"
	"path/filepath"
	"testing"
	"time"

	"godwit/transfer/wire"
)

// TestLongGreeting: an inlet that takes long to say what is missing is listened to for as long as it speaks.
func TestLongGreeting(t *testing.T) {
	usual := greeting
	defer func() { greeting = usual }()
	greeting = time.Second
	const parts = 5
	for tries := 1; ; tries++ {
		spoke, err := speaksFor(t, parts, greeting/4)
		if err == nil {
			return
		}
		if spoke < greeting || tries == 10 { // else this machine stood still
			t.Fatalf("with %v between its words: %v", spoke, err)
		}
	}
}

// speaksFor dials an inlet that says so many parts with a pause before each, and returns the longest that there was.
func speaksFor(t *testing.T, parts int, pause time.Duration) (longest time.Duration, err error) {
	listener, err := net.Listen("unix", filepath.Join(t.TempDir(), "s"))
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		last := time.Now()
		say := func(message ...byte) {
			time.Sleep(pause)
			conn.Write(message) //nolint:errcheck // seen by who reads
			longest = max(longest, time.Since(last))
			last = time.Now()
		}
		for n := range parts {
			asked := wire.AppendFault(nil, []uint64{uint64(n)}) //nolint:gosec // few
			say(append([]byte{byte(kindAsked), 0, 0, 0, byte(len(asked))}, asked...)...)
		}
		say(byte(kindState), 0, 0, 0, 1, 0)
	}()
	c, err := Dial(t.Context(), listener.Addr().String())
	if err == nil {
		if len(c.Asked) != parts {
			t.Errorf("%d pages are asked for, not %d", len(c.Asked), parts)
		}
		c.Close()
	}
	listener.Close()
	<-ended
	return longest, err
}
