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
	"testing"
	"time"

	"godwit/transfer/pace"
	"godwit/transfer/paths"
	"godwit/transfer/wire"
)

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
			inBubble(t, func(t *testing.T) {
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
					w.live(1)
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
		})
	}
}

// TestAnswersAtOnce: what is written is there without more being written, and so is its answer.
func TestAnswersAtOnce(t *testing.T) {
	inBubble(t, func(t *testing.T) {
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
	})
}

// TestAnswersBesideACut: a guest that stands still does not wait for an answer that takes the path that was cut, while
// another works.
func TestAnswersBesideACut(t *testing.T) {
	for lane := 1; lane <= 2; lane++ {
		inBubble(t, func(t *testing.T) {
			w := newWorld(t, 2)
			w.live(2)
			w.mu.Lock()
			w.deaf = lane
			w.mu.Unlock()
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
		})
	}
}

// TestWaitsWhileCut: while no path works the stream waits, and goes on.
func TestWaitsWhileCut(t *testing.T) {
	inBubble(t, func(t *testing.T) {
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
	})
}

// TestGivenUp: an end that gives up breaks the other one, whose reader and writer hear of it.
func TestGivenUp(t *testing.T) {
	for name, who := range map[string]func(w *world) (gives, other io.ReadWriteCloser){
		"the source":      func(w *world) (a, b io.ReadWriteCloser) { return w.source, w.there },
		"the destination": func(w *world) (a, b io.ReadWriteCloser) { return w.there, w.source },
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
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
		})
	}
}

// TestLimitIsOfAllThatGoes: what was on lanes that died goes again within the limit.
func TestLimitIsOfAllThatGoes(t *testing.T) {
	inBubble(t, func(t *testing.T) {
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
	})
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

// TestCloseBesideCloseWrite: an end is closed also while the end of what it sends waits for a lane, of which none comes
// any more.
func TestCloseBesideCloseWrite(t *testing.T) {
	d := Accept(t.Context(), paths.Identity{Migration: "m-00000001"})
	const mostControls = 8 << 20 // of package paths
	if _, err := d.Write(make([]byte, mostControls)); err != nil {
		t.Fatal(err)
	}
	wrote, closed := make(chan error, 1), make(chan error, 1)
	go func() { wrote <- d.CloseWrite() }()
	for begun := false; !begun && d.mu.TryLock(); time.Sleep(time.Millisecond) { // then it waits, or is about to
		begun = d.ended
		d.mu.Unlock()
	}
	go func() { closed <- d.Close() }()
	select {
	case <-closed:
	case <-time.After(10 * time.Second):
		t.Fatal("it waits for a lane")
	}
	if err := <-wrote; err == nil {
		t.Error("its end is said to have been taken")
	}
}
