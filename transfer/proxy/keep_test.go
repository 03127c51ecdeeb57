package proxy

import (
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"godwit/transfer/pages"
)

// shelf is a disk that takes pages, or does something else at one of them.
type shelf struct {
	got    []uint64
	at     uint64
	what   func() error
	closed bool
}

func (s *shelf) Write(page uint64, data []byte) error {
	if data[0] != byte(page) {
		return errors.New("of another page")
	}
	if s.what != nil && page == s.at {
		if err := s.what(); err != nil {
			return err
		}
	}
	s.got = append(s.got, page)
	return nil
}

func (s *shelf) Close() error {
	s.closed = true
	return nil
}

// putAll puts so many pages.
func (k *keeper) putAll(n uint64, done <-chan struct{}) {
	for page := range n {
		data := make([]byte, pages.Size)
		data[0] = byte(page)
		k.put(page, data, done)
	}
}

func outside() (leave func()) { return func() {} }

const shelved = (keepChunks + 2) * keepChunk

// TestKept: all pages are, in their order, also where the disk takes its time.
func TestKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &shelf{at: 100, what: func() error { time.Sleep(keepMost / 2); return nil }}
		k := newKeeper(s, outside)
		k.putAll(shelved+3, nil)
		k.end()
		if len(s.got) != shelved+3 || !slices.IsSorted(s.got) || s.closed {
			t.Errorf("%d pages, given up: %v", len(s.got), s.closed)
		}
	})
}

// TestDiskOfKeptMemoryHangs: reading waits for it for a second, and not at all when the guest is to be stopped; the end
// waits.
func TestDiskOfKeptMemoryHangs(t *testing.T) {
	for name, stops := range map[string]bool{"while the guest runs": false, "as it is stopped": true} {
		synctest.Test(t, func(t *testing.T) {
			hangs, done := make(chan struct{}), make(chan struct{})
			s := &shelf{what: func() error { <-hangs; return nil }}
			k := newKeeper(s, outside)
			want := keepMost
			if stops {
				want = keepMost / 2
				time.AfterFunc(want, func() { close(done) })
			}
			begun := time.Now()
			k.putAll(2*shelved, done)
			if took := time.Since(begun); took != want {
				t.Errorf("%s: reading waited for %v, not %v", name, took, want)
			}
			time.AfterFunc(time.Minute, func() { close(hangs) })
			k.end()
			if took := time.Since(begun); took < time.Minute || s.closed == stops {
				t.Errorf("%s: ended after %v, given up: %v", name, took, s.closed)
			}
		})
	}
}

// TestDiskOfKeptMemoryFull: nothing more is kept, and nobody waits.
func TestDiskOfKeptMemoryFull(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &shelf{at: 70, what: func() error { return errors.New("full") }}
		k := newKeeper(s, outside)
		begun := time.Now()
		k.putAll(3*shelved, nil)
		k.end()
		if took := time.Since(begun); took > 0 || !s.closed || len(s.got) != 70 {
			t.Errorf("%v, %d pages, given up: %v", took, len(s.got), s.closed)
		}
	})
}
