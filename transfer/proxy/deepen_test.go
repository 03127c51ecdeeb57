package proxy

import (
	"bytes"
	"io"
	"testing"
	"time"

	"godwit/internal/need"
)

// TestQEMUIsBehind: frames are taken while QEMU loads what came before them, as far as its socket has room.
func TestQEMUIsBehind(t *testing.T) {
	need.Root(t) // for that room
	const count = 99
	a := newAheadOf(t)
	taken := make(chan struct{})
	go func() {
		defer close(taken)
		for n := range uint64(count) {
			a.frame(t, n+1, 1000, n)
		}
	}()
	select {
	case <-taken:
	case <-time.After(20 * time.Second):
		t.Error("frames wait for QEMU")
	}
	for n := range uint64(count) {
		if err := a.w.Page(n, filled(n)); err != nil {
			t.Fatal(err)
		}
	}
	if err := a.w.Flush(); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, a.want.Len())
	if n, err := io.ReadFull(a.qemu, got); err != nil || !bytes.Equal(got, a.want.Bytes()) {
		t.Errorf("QEMU read %d bytes, %v; other than the %d that it should", n, err, len(got))
	}
	<-taken
}
