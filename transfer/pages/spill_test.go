package pages

import (
	"bytes"
	"errors"
	"sync"
	"testing"
	"time"
)

// slowFile is a spill whose disk stands still: each piece of I/O is told, and ends when it is let go.
type slowFile struct {
	begun chan struct{} // has one for each piece; nil: none waits
	end   chan error    // what each comes to
	mu    sync.Mutex
	file  memoryFile
}

func newSlowFile() *slowFile {
	return &slowFile{begun: make(chan struct{}), end: make(chan error), file: memoryFile{}}
}

func (f *slowFile) wait() error {
	if f.begun == nil {
		return nil
	}
	f.begun <- struct{}{}
	return <-f.end
}

func (f *slowFile) WriteAt(p []byte, at int64) (int, error) {
	if err := f.wait(); err != nil {
		return 0, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.file.WriteAt(p, at)
}

func (f *slowFile) ReadAt(p []byte, at int64) (int, error) {
	if err := f.wait(); err != nil {
		return 0, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.file.ReadAt(p, at)
}

// during does something while a piece of I/O stands still, which then comes to err.
func (f *slowFile) during(t *testing.T, err error, do func()) {
	t.Helper()
	<-f.begun
	done := make(chan struct{})
	go func() { defer close(done); do() }()
	select {
	case <-done:
	case <-time.After(10 * time.Second):
		t.Error("it waits for the disk")
	}
	f.end <- err
	<-done
}

// stalling is a store that was told END, whose memory has room for one page, and that is full: of page 0, which has
// gone, and is not acknowledged.
func stalling(t *testing.T) (*Store, *slowFile) {
	t.Helper()
	file := newSlowFile()
	s := New(10, NewArena(Size, nil, file))
	s.End()
	if err := s.Put(0, content(1)); err != nil {
		t.Fatal(err)
	}
	f := mustTake(t, s, 1)
	f.Pages[0].Coding = Raw
	s.Sent(f)
	return s, file
}

func putAside(s *Store, number uint64, id byte) <-chan error {
	put := make(chan error, 1)
	go func() { put <- s.Put(number, content(id)) }()
	return put
}

func takeAside(s *Store) <-chan *Frame {
	taken := make(chan *Frame, 1)
	go func() {
		f, _ := s.Take(MaxPages)
		taken <- f
	}()
	return taken
}

// TestNobodyWaitsForTheDisk: lanes hang on acknowledgements, and are taken for dead after 2 s. A disk may be slower.
func TestNobodyWaitsForTheDisk(t *testing.T) {
	s, file := stalling(t)
	put := putAside(s, 1, 2)
	file.during(t, nil, func() {
		if err := s.Acked(1); err != nil {
			t.Error(err)
		}
		if p := s.Progress(); p.Delivered != 1 || p.Waiting != 0 || p.Spilled != Size {
			t.Errorf("while it is written: %+v", p)
		}
		s.Stop()
	})
	if err := <-put; err != nil {
		t.Fatal(err)
	}
	taken := takeAside(s)
	file.during(t, nil, func() {
		if err := s.Put(2, content(3)); err != nil { // has the room of what was delivered
			t.Error(err)
		}
		if p := s.Progress(); p.InFlight != 1 || p.Waiting != 1 {
			t.Errorf("while it is read: %+v", p)
		}
		if s.Acked(2) == nil {
			t.Error("a frame was acknowledged that is being made")
		}
	})
	if f := <-taken; f == nil || len(f.Pages) != 1 || !bytes.Equal(f.Pages[0].Data, content(2)) {
		t.Errorf("took %+v", f)
	}
}

// TestWrittenWhileItIsTaken: a newer version of what the spill has is written beside it, so that a frame has one or the
// other.
func TestWrittenWhileItIsTaken(t *testing.T) {
	s, file := stalling(t)
	put := putAside(s, 1, 2)
	file.during(t, nil, func() {})
	<-put
	taken := takeAside(s)
	<-file.begun // and is being read
	put = putAside(s, 1, 3)
	<-file.begun
	file.end <- nil
	file.end <- nil
	if err := <-put; err != nil {
		t.Fatal(err)
	}
	f := <-taken
	if !bytes.Equal(f.Pages[0].Data, content(2)) {
		t.Error("what was taken is another version")
	}
	s.Sent(f)
	if err := s.Acked(f.Number); err != nil {
		t.Fatal(err)
	}
	taken = takeAside(s)
	file.during(t, nil, func() {})
	if f = <-taken; !bytes.Equal(f.Pages[0].Data, content(3)) {
		t.Error("the newer version is lost")
	}
}

// TestReplacedInTheSpill: what a newer version replaces gives up its place, and takes none for good.
func TestReplacedInTheSpill(t *testing.T) {
	s, file := stalling(t)
	for id := range byte(5) {
		put := putAside(s, 1, id+1)
		if id == 3 { // of an older one that is gone by then
			<-file.begun
			taken := takeAside(s)
			<-file.begun
			file.end <- nil
			file.end <- nil
			s.Sent(<-taken)
		} else {
			file.during(t, nil, func() {})
		}
		if err := <-put; err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Acked(2); err != nil {
		t.Fatal(err)
	}
	if p := s.Progress(); p.Spilled != Size || p.SpilledMost > 3*Size || p.Waiting != 1 {
		t.Errorf("%+v", p)
	}
}

// TestBadDisk: an error of the disk is that of who was at it, and then everybody's.
func TestBadDisk(t *testing.T) {
	bad := errors.New("bad disk")
	t.Run("write", func(t *testing.T) {
		s, file := stalling(t)
		put := putAside(s, 1, 2)
		file.during(t, bad, func() {})
		if err := <-put; !errors.Is(err, bad) {
			t.Errorf("put: %v", err)
		}
		if _, err := s.Take(1); !errors.Is(err, bad) {
			t.Errorf("take after that: %v", err)
		}
	})
	t.Run("read", func(t *testing.T) {
		s, file := stalling(t)
		put := putAside(s, 1, 2)
		file.during(t, nil, func() {})
		<-put
		taken := takeAside(s)
		file.during(t, bad, func() {})
		if f := <-taken; f != nil {
			t.Errorf("took %+v", f)
		}
		if err := s.Put(2, content(1)); !errors.Is(err, bad) {
			t.Errorf("put after that: %v", err)
		}
	})
}

// TestReaderAndSenderShareTheSpill: whoever takes has what was put last, and no mixture.
func TestReaderAndSenderShareTheSpill(t *testing.T) {
	const total, rounds, most = 50, 40, 7
	s := New(total, NewArena(3*Size, nil, &slowFile{file: memoryFile{}}))
	s.Stop()
	read := make(chan struct{})
	go func() {
		defer close(read)
		for round := range rounds {
			for page := range uint64(total) {
				if err := s.Put(page, content(byte(1+round))); err != nil {
					t.Error(err)
				}
			}
		}
	}()
	last := map[uint64]byte{}
	for ended := false; ; {
		f, err := s.Take(most)
		if err != nil {
			t.Fatal(err)
		}
		if f == nil {
			if ended {
				break
			}
			select {
			case <-s.Ready():
			case <-read:
				ended = true
			}
			continue
		}
		for _, p := range f.Pages {
			if !bytes.Equal(p.Data, content(p.Data[0])) || p.Data[0] < last[p.Number] {
				t.Fatalf("page %d: %d after %d, or both", p.Number, p.Data[0], last[p.Number])
			}
			last[p.Number] = p.Data[0]
		}
		s.Sent(f)
		if err := s.Acked(f.Number); err != nil {
			t.Fatal(err)
		}
	}
	for page := range uint64(total) {
		if last[page] != rounds {
			t.Errorf("page %d: %d", page, last[page])
		}
	}
	if p := s.Progress(); p.Spilled != 0 || p.Waiting+p.InFlight != 0 || p.SpilledMost > (total+most+1)*Size {
		t.Errorf("%+v", p)
	}
}

// TestSpilledContentsAreNotKept: what was read of the spill for a frame is let go when that was coded, however long it
// is on its way.
func TestSpilledContentsAreNotKept(t *testing.T) {
	s := New(4, NewArena(Size, nil, memoryFile{}))
	s.End()
	for n := range uint64(3) {
		if err := s.Put(n, content(byte(n+1))); err != nil {
			t.Fatal(err)
		}
	}
	f, err := s.Take(3)
	if err != nil || len(f.Pages) != 3 {
		t.Fatal(err)
	}
	for i := range f.Pages {
		f.Pages[i].Coding = Raw
	}
	s.Sent(f)
	for _, p := range f.Pages[1:] {
		if p.Data != nil {
			t.Errorf("page %d is in memory", p.Number)
		}
	}
	if err := s.Missed(1, []uint64{1, 2}); err != nil { // and is there when it goes again
		t.Fatal(err)
	}
	f, err = s.Take(3)
	if err != nil || len(f.Pages) != 2 || f.Pages[0].Data[0] != 2 || f.Pages[1].Data[0] != 3 {
		t.Errorf("%+v, %v", f, err)
	}
}

// TestSpilledMost: what the spill ever held is known when it holds nothing any more, and slots
// that were left count once.
func TestSpilledMost(t *testing.T) {
	s := New(10, NewArena(Size, nil, memoryFile{}))
	s.End() // nothing waits for room from here on
	spilled := func(now, most int64) {
		t.Helper()
		if p := s.Progress(); p.Spilled != now*Size || p.SpilledMost != most*Size {
			t.Errorf("%d of at most %d bytes, want %d of %d pages", p.Spilled, p.SpilledMost, now, most)
		}
	}
	for n := range uint64(4) {
		if err := s.Put(n, content(byte(n+1))); err != nil {
			t.Fatal(err)
		}
	}
	spilled(3, 3)
	for !s.Drained() {
		f := mustTake(t, s, 4)
		s.Sent(f)
		if err := s.Acked(f.Number); err != nil {
			t.Fatal(err)
		}
	}
	spilled(0, 3)
}
