package qemu

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestReadTaps(t *testing.T) {
	// QEMU 10.0's words, with its carriage returns.
	text := "nic0: index=0,type=nic,model=virtio-net-pci,macaddr=52:54:00:00:01:0a\r\n" +
		" \\ net0: index=0,type=tap,ifname=tap-web-a,script=no,downscript=no\r\n" +
		"nic1: index=0,type=nic,model=virtio-net-pci,macaddr=52:54:00:00:01:0b\r\n" +
		" \\ net1: index=0,type=tap,fd=12\r\n" +
		"user0: index=0,type=user,net=10.0.2.0,restrict=off\r\n" +
		"nic3.0: index=0,type=nic,model=virtio-net-pci,macaddr=52:54:00:00:01:0d\r\n" +
		" \\ net3: index=0,type=tap,ifname=many,script=no\r\n" +
		"nic3.1: index=1,type=nic,\r\n" +
		" \\ net3: index=1,type=tap,ifname=many,script=no\r\n" +
		"net2: index=0,type=tap,ifname=last\r\n"
	want := map[string]backend{"net0": {"tap-web-a", 1}, "net1": {"", 1}, "net2": {"last", 1}, "net3": {"many", 2}}
	if diff := cmp.Diff(want, readTaps(text)); diff != "" {
		t.Error(diff)
	}
}

// TestNoCardsIsNoAnswer: of a QEMU that stops answering it is not said that it has no cards, from
// which it would follow that it is another guest's.
func TestNoCardsIsNoAnswer(t *testing.T) {
	f, p := newFake(t, "10.0.2")
	f.net = `""`
	if cards, err := p.Cards(t.Context()); err != nil || len(cards) != 2 {
		t.Fatalf("cards %v, %v", cards, err)
	}
	f.set(func() { f.mute = `"/machine/peripheral-anon/card"` })
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if cards, err := p.Cards(ctx); !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, ErrGone) {
		t.Errorf("cards %v, %v of a QEMU that does not answer", cards, err)
	}
}
