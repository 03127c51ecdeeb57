package proxy_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"godwit/transfer/encode/visit"
	"godwit/transfer/pace"
	"godwit/transfer/paths"
	"godwit/transfer/proxy"
	"godwit/transfer/qstream"
	"godwit/transfer/wire"
)

// fakePages is the memory of the guests here, in two blocks.
const fakePages = 1200

// fakeTail is what follows RAM: noise, and a description.
func fakeTail() []byte {
	tail := append([]byte("\x04noise"), bytes.Repeat([]byte("device "), 3000)...)
	json := `{"configuration": {}, "page_size": 4096, "devices": [{"name": "timer"}]}`
	return append(append(tail, 0, 6, 0, 0, 0, byte(len(json))), json...)
}

func fakePrologue(t *testing.T) *qstream.Prologue {
	t.Helper()
	head, err := hex.DecodeString("5145564d" + "00000003" + "07" + "00000002" + "7063" + "08" + "0001" + "0000")
	if err != nil {
		t.Fatal(err)
	}
	blocks, err := qstream.Layout([]qstream.Block{{Name: "ram", Length: (fakePages - 200) * 4096}, {Name: "vga", Length: 200 * 4096}})
	if err != nil {
		t.Fatal(err)
	}
	return &qstream.Prologue{
		Head: head, Machine: "pc", Section: 2, Blocks: blocks,
		Commands: []qstream.Command{{Code: qstream.OpenReturnPath, At: len(head) - 5}},
	}
}

// fakeSource writes a stream as a QEMU does, and knows what its memory is.
type fakeSource struct {
	conn   net.Conn
	w      *qstream.Writer
	memory [fakePages][]byte
	shut   chan uint32
	held   chan struct{} // closed by SWITCHOVER_ACK
}

func dialSource(t *testing.T, socket string) *fakeSource {
	t.Helper()
	conn, err := net.Dial("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	f := &fakeSource{conn: conn, w: qstream.NewWriter(conn, fakePrologue(t)), shut: make(chan uint32, 1), held: make(chan struct{})}
	go func() {
		back := qstream.NewReturnPath(conn)
		for {
			m, err := back.Next()
			if err != nil {
				return
			}
			switch m.Type {
			case qstream.Shut:
				f.shut <- m.Value
				conn.Close()
			case qstream.SwitchoverAck:
				close(f.held)
			}
		}
	}()
	return f
}

// noise fills data, whose length is a multiple of 8, eight bytes at a time: one by one they take the race detector seconds.
func noise(rng *rand.Rand, data []byte) {
	for ; len(data) > 0; data = data[8:] {
		binary.NativeEndian.PutUint64(data, rng.Uint64())
	}
}

// write changes a page in a way that one of the codings likes, and sends it.
func (f *fakeSource) write(t *testing.T, rng *rand.Rand, page uint64) {
	t.Helper()
	data := make([]byte, 4096)
	switch rng.IntN(6) {
	case 0: // zeros
	case 1, 2:
		noise(rng, data)
	case 3: // a small change
		if old := f.memory[page]; old != nil {
			copy(data, old)
		}
		data[rng.IntN(4096)]++
	case 4: // what another page holds
		if other := f.memory[rng.IntN(fakePages)]; other != nil {
			copy(data, other)
		}
	default: // text
		copy(data, strings.Repeat(fmt.Sprintf("line %d of some text\n", rng.IntN(50)), 300))
	}
	f.memory[page] = data
	if err := f.w.Page(page, data); err != nil {
		t.Fatal(err)
	}
}

// fakeDestination loads one stream as a QEMU does.
type fakeDestination struct {
	memory [fakePages][]byte
	tail   []byte
	opaque []byte
	err    error
	done   chan struct{}
}

// serveDestination has one connection loaded, by load, or nil for a stream that a Parser takes.
func serveDestination(t *testing.T, socket string, load func(net.Conn) error) *fakeDestination {
	t.Helper()
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	f := &fakeDestination{done: make(chan struct{})}
	if load == nil {
		load = f.load
	}
	go func() {
		defer close(f.done)
		conn, err := listener.Accept()
		if err != nil {
			f.err = err
			return
		}
		defer conn.Close()
		f.err = load(conn)
	}()
	return f
}

func (f *fakeDestination) load(conn net.Conn) error {
	p := qstream.NewParser(conn)
	for {
		event, err := p.Next()
		if errors.Is(err, io.EOF) {
			_, err = conn.Write(qstream.AppendMessage(nil, qstream.Shut, make([]byte, 4)))
			return err
		}
		if err != nil {
			return err
		}
		switch e := event.(type) {
		case *qstream.Prologue:
			if _, err := conn.Write(qstream.AppendMessage(nil, qstream.SwitchoverAck, nil)); err != nil {
				return err
			}
		case *qstream.Page:
			data := make([]byte, 4096)
			copy(data, e.Data)
			f.memory[e.Number] = data
		case *qstream.Tail:
			f.tail = append(f.tail, e.Data...)
		case *qstream.Opaque:
			f.opaque = append(f.opaque, e.Data...)
			if bytes.HasSuffix(f.opaque, []byte("the end")) { // a real one knows its sections
				_, err = conn.Write(qstream.AppendMessage(nil, qstream.Shut, make([]byte, 4)))
				return err
			}
		}
	}
}

// fakes are two proxies between two fakes.
type fakes struct {
	limit   pace.Limiter
	src     *proxy.Source
	dst     *proxy.Destination
	from    *fakeSource
	to      *fakeDestination
	uplinks []*uplink
	dir     string // of their sockets and files
}

func newFakes(t *testing.T) *fakes { return newFakesOf(t, nil) }

// newFakesOf are two that keep memory, and offer what was kept.
func newFakesOf(t *testing.T, keep *visit.Writer, elsewhere ...*visit.File) *fakes {
	t.Helper()
	return newFakesWith(t, proxy.DestinationConfig{Elsewhere: elsewhere}, proxy.SourceConfig{Keep: keep})
}

// newFakesWith are two with what these configurations say already.
func newFakesWith(t *testing.T, to proxy.DestinationConfig, from proxy.SourceConfig) *fakes {
	t.Helper()
	return newFakesOver(t, 0, to, from)
}

// newFakesOver are such of which each lane is expected to carry rate bytes per second.
func newFakesOver(t *testing.T, rate int64, to proxy.DestinationConfig, from proxy.SourceConfig) *fakes {
	t.Helper()
	return newFakesTo(t, rate, nil, to, from)
}

// newFakesTo are such with another fake at the destination.
func newFakesTo(t *testing.T, rate int64, load func(net.Conn) error, to proxy.DestinationConfig, from proxy.SourceConfig) *fakes {
	t.Helper()
	dir, err := os.MkdirTemp("", "t-godwit-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	f := &fakes{dir: dir, to: serveDestination(t, filepath.Join(dir, "in"), load)}
	id := paths.Identity{Migration: "m-1", Key: wire.Key{1}}
	to.Identity, to.Socket, to.Mirror = id, filepath.Join(dir, "in"), dir
	if f.dst, err = proxy.NewDestination(context.Background(), to); err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var lanes []paths.Lane
	for _, name := range []string{"a", "b", "c"} {
		u := &uplink{name: name}
		f.uplinks = append(f.uplinks, u)
		lanes = append(lanes, paths.Lane{Path: name, Rate: rate, Open: func(ctx context.Context) (net.Conn, error) {
			return u.dial(ctx, listener.Addr().String())
		}})
	}
	serving := acceptAll(listener, func(conn net.Conn) { f.dst.Serve(context.Background(), conn) }) //nolint:errcheck // the source's end tells
	from.Limit = f.limit.Share()
	from.Socket, from.Identity, from.Lanes, from.Spill, from.Buffer, from.Budget = filepath.Join(dir, "out"), id, lanes, dir, 1<<20, 300*time.Millisecond
	if f.src, err = proxy.ListenSource(context.Background(), from); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		f.src.Close()
		f.dst.Close()
		listener.Close()
		serving.Wait()
	})
	f.from = dialSource(t, filepath.Join(dir, "out"))
	return f
}

// breakOne ends the lanes of an uplink, which may stay cut; but never all of them: who writes would wait for ever.
func (f *fakes) breakOne(rng *rand.Rand) {
	n := rng.IntN(len(f.uplinks))
	f.uplinks[n].set(n > 0 && rng.IntN(3) == 0)
}

// rounds writes memory as a guest does, some pages often, while lanes break.
func (f *fakes) rounds(t *testing.T, rng *rand.Rand) {
	t.Helper()
	if err := f.from.w.Begin(); err != nil {
		t.Fatal(err)
	}
	for page := range uint64(fakePages) {
		f.from.write(t, rng, page)
	}
	for range 12 {
		for page := range uint64(fakePages) {
			if hot := page%97 < 5; hot && rng.IntN(3) > 0 || rng.IntN(40) == 0 {
				f.from.write(t, rng, page)
			}
		}
		if err := f.from.w.EndPart(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Duration(rng.IntN(10)) * time.Millisecond)
		if rng.IntN(2) == 0 {
			f.breakOne(rng)
		}
	}
	for _, u := range f.uplinks {
		u.set(false)
	}
}

// settle waits for both ends, and compares.
func (f *fakes) settle(t *testing.T) {
	t.Helper()
	limit := time.After(2 * hang)
	for what, done := range map[string]<-chan struct{}{"QEMU": f.to.done, "source": f.src.Done(), "destination": f.dst.Done()} {
		select {
		case <-done:
		case <-limit:
			t.Fatalf("%s has not ended: source %v, destination %v, %+v", what, f.src.Err(), f.dst.Err(), f.src.Stats())
		}
	}
	if f.to.err != nil || f.src.Err() != nil || f.dst.Err() != nil {
		t.Fatalf("QEMU %v, source %v, destination %v", f.to.err, f.src.Err(), f.dst.Err())
	}
	for page := range fakePages {
		if !bytes.Equal(f.to.memory[page], f.from.memory[page]) {
			t.Fatalf("page %d differs", page)
		}
	}
}

// addUp compares the figures of a migration that has ended.
func (f *fakes) addUp(t *testing.T, s proxy.Stats) {
	t.Helper()
	var versions, coded, paths int64
	for coding, n := range s.Codings.Pages {
		versions, coded = versions+int64(n), coded+int64(s.Codings.Bytes[coding]) //nolint:gosec // counts
	}
	for _, p := range s.Paths {
		paths += p.Acked
	}
	if there := f.dst.Stats().Acked; coded != s.Acked || paths != s.Acked || there != s.Acked {
		t.Errorf("%d bytes were coded, %d acknowledged, of these %d by path, and %d came", coded, s.Acked, paths, there)
	}
	if put := int64(s.Put - s.Superseded - s.Unchanged); s.Missed == 0 && put != versions { //nolint:gosec // counts
		t.Errorf("%d versions of pages went of %d", versions, put)
	}
	if s.Queue > 0 || s.Waiting+s.Known > 0 || s.InFlight > 0 || s.Delivered != fakePages {
		t.Errorf("something is left: %+v", s)
	}
}

// TestMemoryIsWhole sends streams of made guests while lanes break at random.
func TestMemoryIsWhole(t *testing.T) {
	for seed := range uint64(6) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			f := newFakes(t)
			rng := rand.New(rand.NewPCG(seed, 7))
			f.rounds(t, rng)
			if s := f.src.Stats(); s.Allowed {
				t.Error("allowed by itself")
			}
			select {
			case <-f.from.held:
				t.Error("SWITCHOVER_ACK was not kept back")
			default:
			}
			f.src.AllowSwitchover()
			select {
			case <-f.from.held:
			case <-time.After(hang):
				t.Fatal("no SWITCHOVER_ACK")
			}
			if seed%2 == 0 {
				f.src.Settle(t.Context())
			}
			f.src.Hurry()
			for range 200 { // the last round
				f.from.write(t, rng, rng.Uint64N(fakePages))
			}
			if err := f.from.w.Command(qstream.SwitchoverStart, nil); err != nil {
				t.Fatal(err)
			}
			if err := f.from.w.End(); err != nil {
				t.Fatal(err)
			}
			if err := f.from.w.Tail(fakeTail()); err != nil {
				t.Fatal(err)
			}
			f.settle(t)
			if !bytes.Equal(f.to.tail, fakeTail()) {
				t.Errorf("tail of %d bytes, not %d", len(f.to.tail), len(fakeTail()))
			}
			s := f.src.Stats()
			f.addUp(t, s)
			t.Logf("codings %v, missed %d, superseded %d, rounds %d, repeated %d", s.Codings.Pages, s.Missed, s.Superseded, s.Round, s.Repeated)
		})
	}
}

// TestStreamWithoutReturnPath is refused: QEMU would take it for completed too early.
func TestStreamWithoutReturnPath(t *testing.T) {
	f := newFakes(t)
	pro := fakePrologue(t)
	pro.Head, pro.Commands = pro.Head[:len(pro.Head)-5], nil
	if err := qstream.NewWriter(f.from.conn, pro).Begin(); err != nil {
		t.Fatal(err)
	}
	<-f.src.Done()
	if err := f.src.Err(); err == nil || !strings.Contains(err.Error(), "no return path") {
		t.Errorf("%v", err)
	}
}
