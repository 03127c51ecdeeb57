package proxy

import (
	"bytes"
	"context"
	"errors"
	"net"
	"runtime"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"godwit/internal/need"
	"godwit/transfer/encode"
	"godwit/transfer/pages"
	"godwit/transfer/paths"
	"godwit/transfer/wire"
)

// On a way back most pages are known and take some 40 bytes each. What the guest writes
// meanwhile is not, and must not be foreseen to be as short.
func TestWhatIsWrittenIsNotForeseenAsKnown(t *testing.T) {
	s := &Source{}
	for range 100 {
		f := &pages.Frame{Pages: make([]pages.Page, 64)}
		var c encode.Counts
		c.Pages[pages.Known], c.Bytes[pages.Known] = 60, 60*40
		c.Pages[pages.Batch], c.Bytes[pages.Batch] = 4, 4*2000
		c.Out = 60*40 + 4*2000
		s.count(f, c, encode.S2)
	}
	if fresh, again := s.pageBytes(false), s.pageBytes(true); fresh > 200 || again < 1900 {
		t.Errorf("a new page is foreseen to take %.0f bytes, one that was written %.0f", fresh, again)
	}
}

// TestFramesAreKeptAsTheyAre: thousands of frames of a few bytes wait while no path works, and take no more memory than
// that.
func TestFramesAreKeptAsTheyAre(t *testing.T) {
	const total, most = 24_000, 32 << 20
	s := alone(t, total)
	page := bytes.Repeat([]byte{7}, pages.Size)
	for number := range uint64(total) {
		if err := s.store.Put(number, page); err != nil {
			t.Fatal(err)
		}
	}
	before := heap()
	ended := make(chan error, 1)
	go func() { ended <- s.code() }()
	for s.store.Progress().Waiting > 0 {
		time.Sleep(time.Millisecond)
	}
	if took, p := heap()-before, s.store.Progress(); took > most || p.Frames < 1000 {
		t.Errorf("%d frames take %d bytes", p.Frames, took)
	}
	s.cancel(errClosed)
	<-ended
}

// TestNoEndBeforeHandingOver: the tail may come just when nothing waits. A page that is missed then follows the guest,
// and the list of what is missing has no place after an end.
func TestNoEndBeforeHandingOver(t *testing.T) {
	for _, early := range []bool{false, true} {
		s := alone(t, 10)
		s.tail, s.tailPlain = 10, 10
		s.early.Store(early)
		said, err := s.tellEnd(3)
		if err != nil || said == early || (s.sender.Stats().Controls > 0) == early {
			t.Errorf("early %v: said %v, %d bytes, %v", early, said, s.sender.Stats().Controls, err)
		}
	}
}

// TestAnotherEndFollowsWhatWasMissed: what was missed goes again, and a destination that was told the last frame before it
// hears of another.
func TestAnotherEndFollowsWhatWasMissed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lasts := make(chan uint64, 9)
		s := carryingTo(t, 1<<20, 1, paths.ReceiverConfig{
			Frame: func(number uint64, _ []byte) ([]uint64, error) {
				time.Sleep(time.Second) // the end was told
				return make([]uint64, number%2), nil
			},
			Control: func(topic wire.Topic, body []byte) error {
				end, err := wire.ParseEnd(body)
				lasts <- end.Last
				return err
			},
		})
		ctx, cancel := context.WithCancel(t.Context())
		s.ctx, s.tail = ctx, 10
		if err := s.store.Put(0, someContent(1)); err != nil {
			t.Fatal(err)
		}
		ended := make(chan error, 1)
		go func() { ended <- s.code() }()
		time.Sleep(time.Minute)
		cancel()
		<-ended
		close(lasts)
		var told []uint64
		for last := range lasts {
			told = append(told, last)
		}
		if !slices.Equal(told, []uint64{1, 2}) {
			t.Errorf("told to be the last frames: %v", told)
		}
	})
}

// TestUrgentIsNotBehindARest: who was nudged for a page that has gone meanwhile does not wait with another one for
// room: the guest may ask for a third.
func TestUrgentIsNotBehindARest(t *testing.T) {
	const total = 1000
	s := alone(t, total)
	for number := range uint64(total) {
		if err := s.store.Put(number, bytes.Repeat([]byte{byte(number), 1}, pages.Size/2)); err != nil {
			t.Fatal(err)
		}
	}
	s.follow(t)
	for asked := uint64(total - 1); asked > total-10; asked-- {
		time.Sleep(5 * time.Millisecond) // the last frame waits
		s.sender.Nudge()
		time.Sleep(5 * time.Millisecond)
		s.store.Urgent(asked)
		s.sender.Nudge()
		for patience := need.Patient(20 * time.Second); s.store.Urgent(asked); time.Sleep(time.Millisecond) {
			if patience.Over() {
				t.Fatalf("page %d waits behind others, for a path", asked)
			}
		}
	}
}

// TestAllThatIsUrgentGoes: a guest with many processors, or a huge page, waits for more than a frame of post-copy has,
// and none of that waits for a path.
func TestAllThatIsUrgentGoes(t *testing.T) {
	const total, asked = 1000, 100
	s := alone(t, total)
	for number := range uint64(total) {
		if err := s.store.Put(number, bytes.Repeat([]byte{byte(number), 1}, pages.Size/2)); err != nil {
			t.Fatal(err)
		}
	}
	s.follow(t)
	for s.store.Taken() == 0 || s.sender.Stats().Queued == 0 { // until there is no room
		time.Sleep(time.Millisecond)
	}
	for number := range uint64(asked) {
		s.store.Urgent(total - 1 - number)
	}
	s.sender.Nudge()
	for patience := need.Patient(20 * time.Second); s.store.Urgent(total - asked); time.Sleep(time.Millisecond) {
		if patience.Over() {
			t.Fatalf("page %d waits behind others, for a path", total-asked)
		}
	}
}

// follow has what waits follow a guest that runs, to the end of the test.
func (s *Source) follow(t *testing.T) {
	s.config.Refill = true // all is known to follow
	s.early.Store(true)
	close(s.hurried)
	s.store.PostCopy()
	s.sender.Hurry(0)
	s.sender.KeepShort()
	ended := make(chan error, 1)
	go func() { ended <- s.code() }()
	t.Cleanup(func() {
		s.cancel(errClosed)
		<-ended
	})
}

func heap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc) //nolint:gosec // a size
}

// alone is a Source of so many pages without QEMU, and whose paths do not work.
func alone(t *testing.T, total uint64) *Source {
	s := &Source{hurried: make(chan struct{}), tailed: make(chan struct{}, 1)}
	s.ctx, s.cancel = context.WithCancelCause(context.Background())
	s.store = pages.New(total, pages.NewArena(int64(total)*pages.Size, s.memory.Grow, nil)) //nolint:gosec // few
	s.sender = paths.NewSender(s.ctx, paths.SenderConfig{Acked: s.frameAcked, Lanes: []paths.Lane{{
		Path: "none", Open: func(context.Context) (net.Conn, error) { return nil, errors.New("cut") },
	}}})
	t.Cleanup(func() {
		s.cancel(errClosed)
		<-s.sender.Done()
		s.memory.Close() //nolint:errcheck // the end of the test
	})
	return s
}
