package pipe

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"godwit/transfer/pace"
	"godwit/transfer/paths"
	"godwit/transfer/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var id = paths.Identity{Migration: "m-1/disk0", Key: wire.Key{1}}

// deafness is a connection to which nothing comes any more from some moment on, as over a path that was cut without a word.
type deafness struct {
	*net.TCPConn
	lane int
	now  *atomic.Int64 // which lane
}

func (d deafness) Read(p []byte) (int, error) {
	for {
		n, err := d.TCPConn.Read(p)
		if err != nil || int(d.now.Load()) != d.lane {
			return n, err
		}
	}
}

// world is a pipe over so many paths, and what stands between its ends.
type world struct {
	source *Source
	there  *Destination

	mu    sync.Mutex
	conns map[net.Conn]bool
	made  int
	cut   bool         // nobody is answered
	deaf  atomic.Int64 // nothing comes back over this lane, the first is 1
}

func newWorld(t *testing.T, lanes int) *world {
	t.Helper()
	return newWorldWithin(t, lanes, nil)
}

// newWorldWithin has a limit of bandwidth.
func newWorldWithin(t *testing.T, lanes int, limit *pace.Share) *world {
	t.Helper()
	w := &world{conns: map[net.Conn]bool{}}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w.there = Accept(t.Context(), id)
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			serving.Go(func() { w.there.Serve(t.Context(), conn) }) //nolint:errcheck // lanes die in these tests
		}
	})
	var all []paths.Lane
	for n := range lanes {
		all = append(all, paths.Lane{Path: "way", Open: func(ctx context.Context) (net.Conn, error) {
			w.mu.Lock()
			defer w.mu.Unlock()
			if w.cut {
				return nil, errors.New("the way is cut")
			}
			conn, err := new(net.Dialer).DialContext(ctx, "tcp", listener.Addr().String())
			if err == nil {
				w.conns[conn] = true
				w.made++
			}
			if err != nil {
				return nil, err
			}
			return deafness{conn.(*net.TCPConn), n + 1, &w.deaf}, nil
		}})
	}
	w.source = Open(t.Context(), id, all, limit)
	t.Cleanup(func() {
		w.source.Close()
		w.there.Close()
		listener.Close()
		serving.Wait()
	})
	return w
}

// kill ends some lanes, or all.
func (w *world) kill(all bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for conn := range w.conns {
		conn.(*net.TCPConn).SetLinger(0)
		conn.Close()
		delete(w.conns, conn)
		if !all {
			return
		}
	}
}

func noise(n int) []byte {
	out := make([]byte, n)
	r := rand.NewChaCha8([32]byte{7})
	r.Read(out) //nolint:errcheck // it has no error
	return out
}

// send writes all of it, ends that way, and reads what comes back until that has ended.
func send(conn interface {
	io.ReadWriteCloser
	CloseWrite() error
}, data []byte) (back []byte, err error) {
	wrote := make(chan error, 1)
	go func() {
		_, err := conn.Write(data)
		if err == nil {
			err = conn.CloseWrite()
		}
		wrote <- err
	}()
	back, err = io.ReadAll(conn)
	return back, errors.Join(err, <-wrote)
}

// TestBothWays: bytes come in order, both ways, while lanes die under them, and both ends end well.
func TestBothWays(t *testing.T) {
	for name, killing := range map[string]bool{"lanes live": false, "lanes die": true} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, 3)
			there, here := noise(20<<20), noise(300<<10)
			got := make(chan []byte, 1)
			go func() {
				back, err := send(w.there, here)
				if err != nil {
					t.Errorf("at the destination: %v", err)
				}
				got <- back
			}()
			for at := 0; killing && at < len(there)/2; at += 1 << 20 {
				if _, err := w.source.Write(there[at : at+1<<20]); err != nil {
					t.Fatal(err)
				}
				w.kill(at>>20%3 == 2)
			}
			rest := there
			if killing {
				rest = there[len(there)/2:]
			}
			back, err := send(w.source, rest)
			if err != nil || !bytes.Equal(back, here) {
				t.Errorf("%d bytes came back, %v", len(back), err)
			}
			if !bytes.Equal(<-got, there) {
				t.Error("what arrived is not what was sent")
			}
			w.mu.Lock()
			if killing && w.made < 6 {
				t.Errorf("%d connections: too few died", w.made)
			}
			w.mu.Unlock()
			var ends sync.WaitGroup
			ends.Go(func() { w.there.Close() })
			w.source.Close()
			ends.Wait()
		})
	}
}

// TestAnswersAtOnce: what is written is there without more being written, and so is its answer.
func TestAnswersAtOnce(t *testing.T) {
	w := newWorld(t, 2)
	buf := make([]byte, 10)
	for range 20 {
		if _, err := w.source.Write([]byte("question")); err != nil {
			t.Fatal(err)
		}
		if n, err := w.there.Read(buf); err != nil || string(buf[:n]) != "question" {
			t.Fatalf("%q, %v", buf[:n], err)
		}
		if _, err := w.there.Write([]byte("answer")); err != nil {
			t.Fatal(err)
		}
		if n, err := w.source.Read(buf); err != nil || string(buf[:n]) != "answer" {
			t.Fatalf("%q, %v", buf[:n], err)
		}
	}
}

// TestAnswersBesideACut: a guest that stands still does not wait for an answer that takes the path that was cut, while another works.
func TestAnswersBesideACut(t *testing.T) {
	for lane := range int64(2) {
		w := newWorld(t, 2)
		for w.source.Stats().LanesLive < 2 {
			time.Sleep(time.Millisecond)
		}
		w.deaf.Store(lane + 1)
		for range 12 {
			begun := time.Now()
			if _, err := w.there.Write([]byte("it was written")); err != nil {
				t.Fatal(err)
			}
			if _, err := w.source.Read(make([]byte, 64)); err != nil {
				t.Fatal(err)
			}
			if took := time.Since(begun); took > 250*time.Millisecond {
				t.Fatalf("an answer took %v where lane %d was cut", took, lane)
			}
		}
	}
}

// TestWaitsWhileCut: while no path works the stream waits, and goes on.
func TestWaitsWhileCut(t *testing.T) {
	w := newWorld(t, 2)
	if _, err := w.source.Write([]byte("one")); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(w.there, make([]byte, 3)); err != nil {
		t.Fatal(err)
	}
	w.mu.Lock()
	w.cut = true
	w.mu.Unlock()
	w.kill(true)
	go w.source.Write([]byte("two")) //nolint:errcheck // seen by what is read
	time.Sleep(300 * time.Millisecond)
	w.mu.Lock()
	w.cut = false
	w.mu.Unlock()
	got := make([]byte, 3)
	if _, err := io.ReadFull(w.there, got); err != nil || string(got) != "two" {
		t.Fatalf("%q, %v", got, err)
	}
}

// TestGivenUp: an end that gives up breaks the other one, whose reader and writer hear of it.
func TestGivenUp(t *testing.T) {
	for name, who := range map[string]func(w *world) (gives, other io.ReadWriteCloser){
		"the source":      func(w *world) (a, b io.ReadWriteCloser) { return w.source, w.there },
		"the destination": func(w *world) (a, b io.ReadWriteCloser) { return w.there, w.source },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, 2)
			gives, other := who(w)
			if _, err := w.source.Write([]byte("x")); err != nil {
				t.Fatal(err)
			}
			if _, err := io.ReadFull(w.there, make([]byte, 1)); err != nil {
				t.Fatal(err)
			}
			read := make(chan error, 1)
			go func() {
				_, err := gives.Read(make([]byte, 1))
				read <- err
			}()
			begun := time.Now()
			gives.Close()
			if err := <-read; !errors.Is(err, net.ErrClosed) {
				t.Errorf("who gave up reads: %v", err)
			}
			if _, err := other.Read(make([]byte, 1)); err == nil || !strings.Contains(err.Error(), "given up") {
				t.Errorf("the other reads: %v", err)
			}
			if _, err := other.Write(make([]byte, 4<<20)); err == nil {
				t.Error("the other writes on")
			}
			if took := time.Since(begun); took > 3*time.Second {
				t.Errorf("it took %v", took)
			}
		})
	}
}

// TestLimitIsOfAllThatGoes: what was on lanes that died goes again within the limit.
func TestLimitIsOfAllThatGoes(t *testing.T) {
	const rate = 8 << 20
	var limiter pace.Limiter
	limiter.Set(rate)
	w := newWorldWithin(t, 2, limiter.Share())
	data := noise(4 << 20)
	begun := time.Now()
	for n := range 4 {
		time.AfterFunc(time.Duration(n+1)*70*time.Millisecond, func() { w.kill(true) })
	}
	go w.source.Write(data) //nolint:errcheck // seen by what is read
	got := make([]byte, len(data))
	if _, err := io.ReadFull(w.there, got); err != nil || !bytes.Equal(got, data) {
		t.Fatalf("it is not what was sent (%v)", err)
	}
	took, stats := time.Since(begun), w.source.Stats()
	var sent int64
	for _, p := range stats.Paths {
		sent += p.Sent
	}
	if stats.Repeated == 0 {
		t.Error("nothing was repeated: the case shows nothing")
	}
	if most := int64(rate*took.Seconds()) + 256<<10; sent > most {
		t.Errorf("%d bytes in %v, of which %d went again; at most %d may", sent, took, stats.Repeated, most)
	}
}

// TestEndsWithItsContext: nobody waits on after that.
func TestEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	source := Open(ctx, id, []paths.Lane{{Path: "none", Open: func(context.Context) (net.Conn, error) { return nil, errors.New("no way") }}}, nil)
	there := Accept(ctx, id)
	read := make(chan error, 3)
	go func() {
		_, err := source.Write(make([]byte, 64<<20))
		read <- err
	}()
	for _, r := range []io.Reader{source, there} {
		go func() {
			_, err := r.Read(make([]byte, 1))
			read <- err
		}()
	}
	time.Sleep(20 * time.Millisecond)
	cancel()
	for range 3 {
		if err := <-read; err == nil || err == io.EOF {
			t.Errorf("it ended with %v", err)
		}
	}
	source.Close()
	there.Close()
}

// TestLies: a peer that sends too much before its turn, or what no stream has, is given up.
func TestLies(t *testing.T) {
	d := Accept(t.Context(), id)
	defer d.Close()
	var err error
	for n := uint64(2); err == nil && n < 1000; n++ {
		_, err = d.frame(n, make([]byte, wire.MaxPayload))
	}
	if !errors.Is(err, errFlood) {
		t.Errorf("a flood: %v", err)
	}
	for name, err := range map[string]error{
		"a topic of memory": d.control(wire.TopicTail, nil), "no last frame": d.control(wire.TopicBytesEnd, []byte{1}),
		"to the source": (&Source{end: end{in: newQueue()}}).control(wire.TopicRun, nil),
	} {
		if !errors.Is(err, errTopic) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := d.control(wire.TopicBytesEnd, binary.BigEndian.AppendUint64(nil, 0)); err != nil {
		t.Error(err)
	}
	if n, err := d.Read(make([]byte, 1)); n != 0 || err != io.EOF {
		t.Errorf("after an end before the first frame: %d, %v", n, err)
	}
}
