package inlet_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/hex"
	"io"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"godwit/internal/socket"
	"godwit/transfer/inlet"
	"godwit/transfer/qstream"
	"godwit/transfer/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const total = 300

func prologue(t *testing.T) (*qstream.Prologue, []byte) { return prologueOf(t, 200) }

// prologueOf is of a guest with so many pages of memory, and 100 of its display's.
func prologueOf(t *testing.T, memory int64) (*qstream.Prologue, []byte) {
	t.Helper()
	head, err := hex.DecodeString("5145564d" + "00000003" + "07" + "00000002" + "7063" + "08" + "0001" + "0000")
	if err != nil {
		t.Fatal(err)
	}
	blocks, err := qstream.Layout([]qstream.Block{{Name: "ram", Length: memory * 4096}, {Name: "vga", Length: 100 * 4096}})
	if err != nil {
		t.Fatal(err)
	}
	pro := &qstream.Prologue{
		Head: head, Machine: "pc", Section: 2, Blocks: blocks,
		Commands: []qstream.Command{{Code: qstream.OpenReturnPath, At: len(head) - 5}},
	}
	var b bytes.Buffer
	if err := qstream.NewWriter(&b, pro).Begin(); err != nil {
		t.Fatal(err)
	}
	return pro, b.Bytes()
}

// world is an inlet, and the end of the connection that a QEMU would have.
type world struct {
	socket string
	ended  chan error
	qemu   net.Conn      // QEMU's end
	ours   *net.UnixConn // that a proxy has
	want   bytes.Buffer  // what QEMU is to read
	writer *qstream.Writer
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{socket: filepath.Join(t.TempDir(), "s"), ended: make(chan error, 1)}
	listener, err := socket.Listen(w.socket)
	if err != nil {
		t.Fatal(err)
	}
	go func() { w.ended <- inlet.Serve(listener) }()
	l, err := net.Listen("unix", filepath.Join(t.TempDir(), "q"))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	conn, err := net.Dial("unix", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	w.ours = conn.(*net.UnixConn)
	if w.qemu, err = l.Accept(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		w.qemu.Close()
		w.ours.Close()
	})
	return w
}

func (w *world) dial(t *testing.T) *inlet.Client {
	t.Helper()
	c, err := inlet.Dial(t.Context(), w.socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// begin begins with the pages of runs missing.
func (w *world) begin(t *testing.T, runs []wire.Run, devices []byte) *inlet.Client {
	t.Helper()
	pro, head := prologue(t)
	c := w.dial(t)
	if c.Begun {
		t.Error("has begun")
	}
	if err := c.Begin(w.ours, head, runs, devices); err != nil {
		t.Fatal(err)
	}
	w.ours.Close()
	w.writer = qstream.Continue(&w.want, pro)
	for _, r := range runs {
		if err := w.writer.Discard(r.First, r.Count); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.writer.Run(devices); err != nil {
		t.Fatal(err)
	}
	return c
}

// read wants QEMU to get what its writer says, and nothing else yet.
func (w *world) read(t *testing.T) {
	t.Helper()
	got := make([]byte, w.want.Len())
	w.qemu.SetReadDeadline(time.Now().Add(10 * time.Second))
	if _, err := io.ReadFull(w.qemu, got); err != nil || !bytes.Equal(got, w.want.Bytes()) {
		t.Fatalf("QEMU read other bytes, %v", err)
	}
	w.want.Reset()
}

func (w *world) ask(t *testing.T, block string, page, count uint64) {
	t.Helper()
	data := binary.BigEndian.AppendUint64(nil, page<<12)
	data = binary.BigEndian.AppendUint32(data, uint32(count<<12))
	data = append(append(data, byte(len(block))), block...)
	if _, err := w.qemu.Write(qstream.AppendMessage(nil, qstream.ReqPagesID, data)); err != nil {
		t.Fatal(err)
	}
}

func (w *world) end(t *testing.T) error {
	t.Helper()
	select {
	case err := <-w.ended:
		return err
	case <-time.After(20 * time.Second):
		t.Fatal("the inlet has not ended")
		return nil
	}
}

func page(id byte) []byte { return bytes.Repeat([]byte{id}, 4096) }

// TestAnotherProxyGoesOn loses the proxy in the middle of a page, and the next one brings
// the rest.
func TestAnotherProxyGoesOn(t *testing.T) {
	w := newWorld(t)
	c := w.begin(t, []wire.Run{{First: 10, Count: 3}, {First: 63, Count: 2}, {First: 190, Count: 20}}, []byte("devices"))
	w.read(t)
	c.Page(10, page(1))
	c.Zero(195)
	c.Page(10, page(9)) // once is enough
	c.Page(11, page(2))
	c.Page(5, page(9)) // not missing
	if err := c.Flush(); err != nil {
		t.Fatal(err)
	}
	w.writer.Page(10, page(1))
	w.writer.Zero(195)
	w.writer.Page(11, page(2))
	w.writer.EndPart()
	w.read(t)
	w.ask(t, "ram", 11, 2) // one is there
	if e, err := c.Next(); err != nil || !slices.Equal(e.Asked, []uint64{12}) {
		t.Fatalf("%+v, %v", e, err)
	}
	raw, err := net.Dial("unix", w.socket) // a proxy that dies within a message
	if err != nil {
		t.Fatal(err)
	}
	raw.Write([]byte{5, 0, 0, 16, 8, 0, 0})
	if _, err := c.Next(); err == nil {
		t.Error("two proxies at a time")
	}
	raw.Close()
	w.ask(t, "vga", 0, 1)
	c = w.dial(t)
	for begun := time.Now(); len(c.Asked) < 2; c = w.dial(t) { // QEMU's request may come after
		if time.Since(begun) > 10*time.Second {
			t.Fatalf("asked %v", c.Asked)
		}
	}
	want := []wire.Run{{First: 12, Count: 1}, {First: 63, Count: 2}, {First: 190, Count: 5}, {First: 196, Count: 14}}
	if !c.Begun || !slices.Equal(c.Missing.Runs(), want) || !slices.Equal(c.Asked, []uint64{12, 200}) {
		t.Fatalf("begun %v, missing %v, asked %v", c.Begun, c.Missing.Runs(), c.Asked)
	}
	for _, r := range want {
		for n := range r.Count {
			c.Page(r.First+n, page(3))
			w.writer.Page(r.First+n, page(3))
		}
	}
	c.Flush()
	if err := c.Flush(); err != nil {
		t.Fatal(err)
	}
	w.writer.Finish()
	w.read(t)
	w.qemu.Write(qstream.AppendMessage(nil, qstream.Shut, make([]byte, 4)))
	if e, err := c.Next(); err != nil || !e.Done || e.Value != 0 {
		t.Fatalf("%+v, %v", e, err)
	}
	w.qemu.Close()
	c.Close()
	if err := w.end(t); err != nil {
		t.Error(err)
	}
}

// TestWhatAProxyGaveIsTaken, though QEMU does not read for a while and the next proxy is there by then.
func TestWhatAProxyGaveIsTaken(t *testing.T) {
	const given = 115 // more than QEMU's socket and what is written to it hold; 140 were once more than the proxy's socket held beside these
	w := newWorld(t)
	c := w.begin(t, []wire.Run{{First: 0, Count: total}}, []byte("devices"))
	w.read(t)
	for n := range uint64(given) {
		c.Page(n, page(byte(n)))
	}
	if err := c.Flush(); err != nil {
		t.Fatal(err)
	}
	time.AfterFunc(time.Second, func() { io.Copy(io.Discard, w.qemu) })
	next := w.dial(t)
	if got, want := next.Missing.Runs(), []wire.Run{{First: given, Count: total - given}}; !slices.Equal(got, want) {
		t.Errorf("missing are %v, want %v", got, want)
	}
}

// TestProxyThatDoesNotListen, as it hangs while it is told a long list of what is missing, keeps neither QEMU's
// requests from being taken nor the next proxy waiting.
func TestProxyThatDoesNotListen(t *testing.T) {
	w := newWorld(t)
	const memory = 100_000
	var runs []wire.Run
	for n := uint64(0); n < memory; n += 2 {
		runs = append(runs, wire.Run{First: n, Count: 1})
	}
	_, head := prologueOf(t, memory)
	go io.Copy(io.Discard, w.qemu) //nolint:errcheck // it ends with the connection
	c := w.dial(t)
	if err := c.Begin(w.ours, head, runs, []byte("devices")); err != nil {
		t.Fatal(err)
	}
	hangs, err := net.Dial("unix", w.socket)
	if err != nil {
		t.Fatal(err)
	}
	defer hangs.Close()
	if _, err := c.Next(); err == nil {
		t.Fatal("two proxies at a time")
	}
	w.ask(t, "ram", 8, 1)
	next := w.dial(t)
	if n := next.Missing.Left(); n != memory/2 {
		t.Errorf("%d pages are missing", n)
	}
	asked := next.Asked
	if len(asked) == 0 { // it came after the list was made
		e, err := next.Next()
		if err != nil {
			t.Fatal(err)
		}
		asked = e.Asked
	}
	if !slices.Equal(asked, []uint64{8}) {
		t.Errorf("asked %v", asked)
	}
}

// TestInletEnds by itself when it is of no use.
func TestInletEnds(t *testing.T) {
	t.Run("its proxy leaves before it begins", func(t *testing.T) {
		w := newWorld(t)
		w.dial(t).Close()
		if err := w.end(t); err != nil {
			t.Error(err)
		}
		w.qemu.SetReadDeadline(time.Now().Add(100 * time.Millisecond))
		if n, err := w.qemu.Read(make([]byte, 1)); n > 0 || err == io.EOF {
			t.Errorf("QEMU read %d bytes, %v", n, err)
		}
	})
	t.Run("QEMU ends, and nobody is connected", func(t *testing.T) {
		w := newWorld(t)
		c := w.begin(t, []wire.Run{{First: 1, Count: 1}}, nil)
		c.Close()
		w.qemu.Close()
		if err := w.end(t); err == nil || !strings.Contains(err.Error(), "1 pages missing") {
			t.Error(err)
		}
	})
	t.Run("QEMU ends, and a proxy hears it", func(t *testing.T) {
		w := newWorld(t)
		c := w.begin(t, []wire.Run{{First: 1, Count: 2}}, nil)
		w.qemu.Write(qstream.AppendMessage(nil, qstream.Shut, []byte{0, 0, 0, 1}))
		if _, err := c.Next(); err == nil || !strings.Contains(err.Error(), "2 pages missing") {
			t.Error(err)
		}
		w.qemu.Close()
		c.Close()
		w.end(t) //nolint:errcheck // as above
	})
}

// TestBadBeginning is refused, and QEMU's connection is closed.
func TestBadBeginning(t *testing.T) {
	_, head := prologue(t)
	for name, c := range map[string]struct {
		head []byte
		runs []wire.Run
	}{
		"no prologue":              {nil, []wire.Run{{First: 1, Count: 1}}},
		"half a prologue":          {head[:20], []wire.Run{{First: 1, Count: 1}}},
		"a page that is not there": {head, []wire.Run{{First: total, Count: 1}}},
		"nothing is missing":       {head, nil},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			client := w.dial(t)
			if err := client.Begin(w.ours, c.head, c.runs, []byte("devices")); err == nil {
				t.Error("no error")
			}
			w.ours.Close()
			if err := w.end(t); err != nil {
				t.Error(err)
			}
			rest, err := io.ReadAll(w.qemu)
			if err != nil || bytes.Contains(rest, []byte("devices")) {
				t.Errorf("QEMU read %q, %v", rest, err)
			}
		})
	}
}

// TestMissing compares with a map.
func TestMissing(t *testing.T) {
	m := inlet.NewMissing(200)
	runs := []wire.Run{{First: 0, Count: 64}, {First: 65, Count: 1}, {First: 100, Count: 100}}
	if err := m.Add(runs); err != nil || !slices.Equal(m.Runs(), runs) || m.Left() != 165 {
		t.Fatalf("%v, %v, %d", err, m.Runs(), m.Left())
	}
	for _, n := range []uint64{0, 63, 110, 127, 128, 199} {
		if !m.Remove(n) || m.Remove(n) {
			t.Errorf("page %d", n)
		}
	}
	want := []wire.Run{{First: 1, Count: 62}, {First: 65, Count: 1}, {First: 100, Count: 10}, {First: 111, Count: 16}, {First: 129, Count: 70}}
	if !slices.Equal(m.Runs(), want) || m.Has(200) || m.Remove(1<<40) {
		t.Errorf("%v", m.Runs())
	}
	for _, bad := range []wire.Run{{First: 199, Count: 2}, {First: 200, Count: 1}, {First: 1 << 63, Count: 1 << 63}, {First: 1, Count: 1}} {
		if m.Add([]wire.Run{bad}) == nil {
			t.Errorf("%v was added", bad)
		}
	}
}

// FuzzInlet sends what no proxy does.
func FuzzInlet(f *testing.F) {
	f.Add([]byte{4, 0, 0, 0, 0})
	f.Add([]byte{1, 0, 0, 0, 2, 1, 2, 5, 0xff, 0xff, 0xff, 0xff})
	f.Fuzz(func(t *testing.T, in []byte) {
		w := newWorld(t)
		conn, err := new(net.Dialer).DialContext(context.Background(), "unix", w.socket)
		if err != nil {
			t.Fatal(err)
		}
		conn.Write(in)
		conn.Close()
		w.end(t) //nolint:errcheck // that it ends is enough
	})
}
