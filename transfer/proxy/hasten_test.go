package proxy

import (
	"bytes"
	"testing"
	"time"

	"godwit/transfer/encode"
	"godwit/transfer/inlet"
	"godwit/transfer/pages"
	"godwit/transfer/paths"
	"godwit/transfer/qstream"
	"godwit/transfer/wire"
)

func someContent(b byte) []byte { return bytes.Repeat([]byte{b}, pages.Size) }

// TestAskedForWhileItIsPut: a page of a refill that the guest asks for while it waits for room in
// the store goes before all others.
func TestAskedForWhileItIsPut(t *testing.T) {
	sender := paths.NewSender(t.Context(), paths.SenderConfig{})
	defer sender.Close() //nolint:errcheck // it had no lanes
	s := &Source{
		config: SourceConfig{Refill: true}, ctx: t.Context(), sender: sender, hurried: make(chan struct{}),
		store:  pages.New(100, pages.NewArena(2*pages.Size, nil, nil)),
		refill: &refill{wanted: inlet.NewMissing(100), early: map[uint64]bool{}, all: make(chan struct{})},
	}
	if err := s.refill.wanted.Add([]wire.Run{{First: 0, Count: 10}}); err != nil {
		t.Fatal(err)
	}
	for n := range uint64(2) {
		if err := s.putAgain(&qstream.Page{Number: n, Data: someContent(byte(n + 1))}); err != nil {
			t.Fatal(err)
		}
	}
	put := make(chan error)
	go func() { put <- s.putAgain(&qstream.Page{Number: 7, Data: someContent(7)}) }()
	time.Sleep(20 * time.Millisecond) // it waits for room: nothing tells
	s.hasten(7)
	f, err := s.store.Take(1)
	if err != nil || len(f.Pages) != 1 {
		t.Fatalf("%+v, %v", f, err)
	}
	s.store.Sent(f)
	if err := s.store.Acked(f.Number); err != nil {
		t.Fatal(err)
	}
	if err := <-put; err != nil {
		t.Fatal(err)
	}
	if f, err = s.store.Take(1); err != nil || !f.Urgent || f.Pages[0].Number != 7 {
		t.Errorf("frame %d goes, urgent %v, %v", f.Number, f.Urgent, err)
	}
}

// TestPassingSetsInPostCopy are left alone: that one is gone is not said any more then.
func TestPassingSetsInPostCopy(t *testing.T) {
	for name, begin := range map[string]func(*Source) error{
		"hand over": func(s *Source) error { return s.handOver(0) },
		"refill":    func(s *Source) error { s.beginRefill(100); return nil },
	} {
		t.Run(name, func(t *testing.T) {
			sender := paths.NewSender(t.Context(), paths.SenderConfig{})
			defer sender.Close() //nolint:errcheck // it had no lanes
			s := &Source{
				ctx: t.Context(), sender: sender, hurried: make(chan struct{}),
				store: pages.New(100, pages.NewArena(1<<20, nil, nil)),
			}
			if err := s.store.Put(1, someContent(1)); err != nil {
				t.Fatal(err)
			}
			if err := s.offered.Add(encode.FirstPassing, 0, []uint64{5}); err != nil {
				t.Fatal(err)
			}
			if _, _, ok := s.offered.Lookup(5); !ok {
				t.Fatal("nothing is offered")
			}
			s.early.Store(true)
			if err := begin(s); err != nil {
				t.Fatal(err)
			}
			if _, _, ok := s.offered.Lookup(5); ok {
				t.Error("a page is coded by memory of another guest, which may go")
			}
		})
	}
}
