package qstream_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"path/filepath"
	"slices"
	"testing"
	"testing/iotest"
	"time"

	"godwit/internal/need"
	"godwit/transfer/qstream"
	"godwit/vm"
	"godwit/vm/qemu"
	"godwit/vm/vmtest"
)

// busy writes into 4 of its 8 MiB of noise.
var busy = vmtest.Writer{Start: 4 << 20, Size: 8 << 20, Hot: 4 << 20, Delay: 20_000}

// takeIn migrates a running guest to us, stops it after some parts, and keeps the newest of
// each page. The source still waits for an answer. All bytes go to a copy, too.
func takeIn(t *testing.T, dir string, copied io.Writer) (*source, *image) {
	t.Helper()
	m := startGuest(t, dir, "tcg", busy, false)
	if err := vmtest.AwaitPasses(serial(m), 1, liveLimit); err != nil {
		t.Fatal(err)
	}
	s := migrateToUs(t, m, dir, 8<<20, copied) // less than it writes: no QEMU finishes by itself
	im := &image{pages: map[uint64][]byte{}}
	versions, stopAt := 0, 0
	for last := false; !last; {
		switch e := s.next().(type) {
		case *qstream.Prologue:
			pro := *e
			im.pro = &pro
		case *qstream.Page:
			versions++
			im.pages[e.Number] = bytes.Clone(e.Data)
			if all := int(im.pro.Blocks.Pages()); stopAt == 0 && versions > all+all/2 {
				stopAt = versions
				s.stop()
			}
		case *qstream.Tail:
			im.tail, last = append(im.tail, e.Data...), e.Last
			im.device = e.Devices
		case *qstream.Opaque:
			t.Fatalf("opaque: %s", e.Reason)
		}
	}
	t.Logf("%d versions of %d pages, tail %d bytes", versions, len(im.pages), len(im.tail))
	return s, im
}

// destination is a QEMU that waits, and our connection to it.
func destination(t *testing.T, dir string, postcopy bool) (*qemu.Process, net.Conn) {
	t.Helper()
	m := startGuest(t, dir, "tcg", busy, true)
	path := filepath.Join(dir, "in.sock")
	if err := m.PrepareIncoming(t.Context(), vm.MigrateOptions{URI: "unix:" + path, Postcopy: postcopy}); err != nil {
		t.Fatal(err)
	}
	conn, err := new(net.Dialer).DialContext(t.Context(), "unix", path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	conn.SetDeadline(time.Now().Add(liveLimit))
	return m, conn
}

// TestQEMULoadsNewestPagesInAnyOrder writes the newest version of each page, shuffled, and
// compares what the destination has then, page by page, before it runs.
func TestQEMULoadsNewestPagesInAnyOrder(t *testing.T) {
	need.QEMU(t)
	dir := shortDir(t)
	s, im := takeIn(t, dir, io.Discard)
	m, conn := destination(t, dir, false)
	w := qstream.NewWriter(conn, im.pro)
	if err := w.Begin(); err != nil {
		t.Fatal(err)
	}
	order := im.shuffled(3)
	im.put(t, w, order[:len(order)/2])
	if err := w.EndPart(); err != nil {
		t.Fatal(err)
	}
	im.put(t, w, order[len(order)/2:])
	if err := errors.Join(w.End(), w.Tail(im.tail)); err != nil {
		t.Fatal(err)
	}
	awaitShut(t, qstream.NewReturnPath(conn))
	if _, err := m.AwaitMigration(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.answer()
	sameMemory(t, m, dir, im)
	runOn(t, m)
}

// TestQEMULoadsAnOpaqueRest writes the pages of the stream's first parts in another order, the
// last one last, and all that follows as it was: its first page continues the block.
func TestQEMULoadsAnOpaqueRest(t *testing.T) {
	need.QEMU(t)
	dir := shortDir(t)
	var stream bytes.Buffer
	s, im := takeIn(t, dir, &stream)
	begun, last, at := firstParts(t, stream.Bytes())
	m, conn := destination(t, dir, false)
	w := qstream.NewWriter(conn, begun.pro)
	if err := w.Begin(); err != nil {
		t.Fatal(err)
	}
	order := slices.DeleteFunc(begun.shuffled(6), func(n uint64) bool { return n == last })
	begun.put(t, w, append(order, last))
	if err := w.Opaque(stream.Bytes()[at:]); err != nil {
		t.Fatal(err)
	}
	awaitShut(t, qstream.NewReturnPath(conn))
	if _, err := m.AwaitMigration(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.answer()
	sameMemory(t, m, dir, im)
	runOn(t, m)
}

// firstParts returns the pages of a stream's first parts, the last of them, and where they
// end: before a part whose first page continues the block.
func firstParts(t *testing.T, stream []byte) (im *image, last uint64, end int64) {
	t.Helper()
	const header, flagContinue = 5, 0x20
	im = &image{pages: map[uint64][]byte{}}
	rest := bytes.NewReader(stream)
	p := qstream.NewParser(iotest.OneByteReader(rest)) // so it reads no byte too many
	for {
		event, err := p.Next()
		if err != nil {
			t.Fatalf("no part continues a block: %v", err)
		}
		switch e := event.(type) {
		case *qstream.Prologue:
			pro := *e
			im.pro = &pro
		case *qstream.Page:
			im.pages[e.Number], last = bytes.Clone(e.Data), e.Number
		case *qstream.RoundEnd:
			end = rest.Size() - int64(rest.Len())
			if stream[end+header+7]&flagContinue != 0 {
				return im, last, end
			}
		}
	}
}

// sameMemory migrates a paused guest to us, compares, and cancels.
func sameMemory(t *testing.T, m *qemu.Process, dir string, want *image) {
	t.Helper()
	s := migrateToUs(t, m, dir, 200<<20, io.Discard)
	go m.ReleaseSwitchover(t.Context()) //nolint:errcheck // the stream's end is waited for
	var blocks qstream.Blocks
	got := map[uint64]bool{}
	for last := false; !last; {
		switch e := s.next().(type) {
		case *qstream.Prologue:
			blocks = e.Blocks
		case *qstream.Page:
			if data := want.pages[e.Number]; !bytes.Equal(data, e.Data) {
				i, offset, _ := blocks.Find(e.Number)
				t.Errorf("block %q at %#x is another", blocks[i].Name, offset)
			}
			got[e.Number] = true
		case *qstream.Tail:
			last = e.Last
		}
	}
	if len(got) != len(want.pages) || uint64(len(got)) != want.pro.Blocks.Pages() {
		t.Errorf("%d pages, not %d", len(got), len(want.pages))
	}
	s.conn.Close() // QEMU sees its migration fail
	if _, err := m.AwaitMigration(t.Context()); err == nil {
		t.Fatal("source completed without an answer")
	}
}

// runOn lets the guest go on, which finds every lost or old page of its own.
func runOn(t *testing.T, m *qemu.Process) {
	t.Helper()
	if err := m.Cont(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := vmtest.AwaitPasses(serial(m), 3, liveLimit); err != nil {
		t.Fatal(err)
	}
}

// awaitShut reads on until SHUT, which must say that all is well.
func awaitShut(t *testing.T, back *qstream.ReturnPath) {
	t.Helper()
	for {
		m, err := back.Next()
		if err != nil {
			t.Fatal(err)
		}
		if m.Type == qstream.Shut {
			if m.Value != 0 {
				t.Fatalf("SHUT %d", m.Value)
			}
			return
		}
	}
}

// TestQEMURunsBeforeItsPagesAreThere: post-copy from a source that knows only pre-copy. Half
// of the pages are missing when the guest runs; what it touches is written on demand, the
// rest behind that.
func TestQEMURunsBeforeItsPagesAreThere(t *testing.T) {
	need.QEMU(t)
	dir := shortDir(t)
	s, im := takeIn(t, dir, io.Discard)
	m, conn := destination(t, dir, true)
	w := qstream.NewWriter(conn, im.pro)
	if err := w.Advise(qstream.PageSize); err != nil {
		t.Fatal(err)
	}
	order := im.shuffled(4)
	sent, missing := order[:len(order)/2], order[len(order)/2:]
	im.put(t, w, sent)
	for _, n := range missing {
		if err := w.Discard(n, 1); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Run(im.tail[:im.device]); err != nil {
		t.Fatal(err)
	}
	handed := time.Now()
	asked, ended := requests(conn, im.pro.Blocks)
	ctx, cancel := context.WithTimeout(t.Context(), liveLimit)
	defer cancel()
	ready := make(chan error, 1)
	go func() { ready <- awaitPaused(ctx, m) }()

	faults := serve(t, w, im, missing, asked, func() bool {
		select {
		case err := <-ready:
			if err == nil {
				err = m.Cont(ctx)
			}
			if err != nil {
				t.Error(err)
			}
			t.Logf("runs %v after the devices", time.Since(handed))
			return true
		default:
			return false
		}
	})
	if err := w.Finish(); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	if _, err := m.AwaitMigration(ctx); err != nil {
		t.Fatal(err)
	}
	s.answer()
	t.Logf("%d of %d pages missing, %d asked for", len(missing), len(order), faults)
	if faults == 0 {
		t.Error("no page was asked for")
	}
	if err := vmtest.AwaitPasses(serial(m), 3, liveLimit); err != nil {
		t.Fatal(err)
	}
}

// requests returns the pages that the destination asks for, and how its way back ended.
func requests(conn net.Conn, blocks qstream.Blocks) (<-chan uint64, <-chan error) {
	asked, ended := make(chan uint64, 1<<16), make(chan error, 1)
	go func() {
		defer close(asked)
		back := qstream.NewReturnPath(conn)
		for {
			m, err := back.Next()
			if err != nil {
				ended <- err
				return
			}
			switch m.Type {
			case qstream.Shut:
				if m.Value != 0 {
					err = errors.New("the destination failed")
				}
				ended <- err
				return
			case qstream.ReqPages, qstream.ReqPagesID:
				first, count, err := blocks.Range(m.Block, m.Offset, m.Length)
				if err != nil {
					ended <- err
					return
				}
				for i := range count {
					asked <- first + i
				}
			}
		}
	}()
	return asked, ended
}

// serve writes each missing page once: those asked for at once; the others, one a
// millisecond for the first second after started is true, fast then.
func serve(t *testing.T, w *qstream.Writer, im *image, missing []uint64, asked <-chan uint64, started func() bool) (faults int) {
	t.Helper()
	left := map[uint64]bool{}
	for _, n := range missing {
		left[n] = true
	}
	send := func(n uint64) {
		if left[n] {
			im.put(t, w, []uint64{n})
			if err := w.Flush(); err != nil {
				t.Fatal(err)
			}
			delete(left, n)
		}
	}
	running, slowly := false, time.Time{}
	for len(left) > 0 {
		if !running && started() {
			running, slowly = true, time.Now().Add(time.Second)
		}
		pause := time.Millisecond
		if running && time.Now().After(slowly) {
			pause = 0
		}
		select {
		case n, ok := <-asked:
			if !ok {
				t.Fatal("the way back ended")
			}
			if left[n] {
				faults++
			}
			send(n)
		case <-time.After(pause):
			if running {
				send(missing[0])
				missing = missing[1:]
			}
		}
	}
	return faults
}

// awaitPaused waits until a waiting QEMU may be let run.
func awaitPaused(ctx context.Context, m *qemu.Process) error {
	for {
		status, err := m.Status(ctx)
		if err != nil || status == vm.Paused {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(2 * time.Millisecond):
		}
	}
}
