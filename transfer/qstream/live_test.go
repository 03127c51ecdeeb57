package qstream_test

import (
	"bytes"
	"errors"
	"flag"
	"io"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"godwit/internal/need"
	"godwit/transfer/qstream"
	"godwit/vm"
	"godwit/vm/qemu"
	"godwit/vm/vmtest"
)

var captureTo = flag.String("capture", "", "write the stream of TestLiveStream to testdata/NAME.zst; see scripts/capture-stream")

const (
	liveMemory = 16 << 20
	liveLimit  = 90 * time.Second
)

// startGuest starts a guest that writes, or a QEMU that waits for it.
func startGuest(t *testing.T, dir, accel string, w vmtest.Writer, incoming bool) *qemu.Process {
	t.Helper()
	image := filepath.Join(dir, "writer")
	if err := os.WriteFile(image, w.Image(), 0o600); err != nil {
		t.Fatal(err)
	}
	name := "src"
	if incoming {
		name = "dst"
	}
	m, err := qemu.Start(t.Context(), qemu.Spec{
		Name: "t-stream", Memory: liveMemory, Accel: accel,
		Dir: filepath.Join(dir, name), Kernel: image, Incoming: incoming,
	})
	if err != nil {
		t.Fatal(err)
	}
	vmtest.Guard(t, m.PID())
	t.Cleanup(func() { m.Kill() })
	return m
}

func serial(m *qemu.Process) string { return filepath.Join(m.Dir(), "serial.log") }

// source is a guest that is being migrated to us.
type source struct {
	*qemu.Process
	t     *testing.T
	conn  net.Conn
	parse *qstream.Parser

	stopped chan error
}

// migrateToUs starts a held migration; what is read goes to a copy as well.
func migrateToUs(t *testing.T, m *qemu.Process, dir string, bandwidth int64, copied io.Writer) *source {
	t.Helper()
	listener, err := net.Listen("unix", filepath.Join(dir, "out.sock"))
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	accepted := make(chan net.Conn, 1)
	go func() {
		if conn, err := listener.Accept(); err == nil {
			accepted <- conn
		}
		close(accepted)
	}()
	err = m.Migrate(t.Context(), vm.MigrateOptions{
		URI: "unix:" + filepath.Join(dir, "out.sock"), HoldSwitchover: true, MaxBandwidth: bandwidth, DowntimeLimit: time.Millisecond,
	})
	if err != nil {
		t.Fatal(err)
	}
	conn := <-accepted
	t.Cleanup(func() { conn.Close() })
	conn.SetDeadline(time.Now().Add(liveLimit))
	return &source{Process: m, t: t, conn: conn, parse: qstream.NewParser(io.TeeReader(conn, copied))}
}

// next returns the stream's next event.
func (s *source) next() qstream.Event {
	s.t.Helper()
	e, err := s.parse.Next()
	if err != nil {
		s.t.Fatal(err)
	}
	return e
}

// stop pauses the guest and lets the migration finish, while the stream is read on: QEMU
// answers nothing while it waits for its reader.
func (s *source) stop() {
	s.stopped = make(chan error, 1)
	go func() {
		err := s.Stop(s.t.Context())
		if err == nil {
			err = s.ReleaseSwitchover(s.t.Context())
		}
		s.stopped <- err
	}()
}

// answer says that the destination has loaded all, and sees the source complete.
func (s *source) answer() {
	s.t.Helper()
	if s.stopped == nil {
		s.t.Fatal("the source finished before it was stopped")
	}
	if err := <-s.stopped; err != nil {
		s.t.Fatal(err)
	}
	if _, err := s.conn.Write(qstream.AppendMessage(nil, qstream.Shut, make([]byte, 4))); err != nil {
		s.t.Fatal(err)
	}
	if _, err := s.AwaitMigration(s.t.Context()); err != nil {
		s.t.Fatal(err)
	}
}

// TestLiveStream parses the stream of the QEMU that is installed while it comes, and sees
// the source complete. With -capture the stream is kept.
func TestLiveStream(t *testing.T) {
	need.QEMU(t)
	dir := shortDir(t)
	m := startGuest(t, dir, "tcg", vmtest.Writer{Start: 4 << 20, Size: 24 << 10, Delay: 2_000_000}, false)
	if err := vmtest.AwaitPasses(serial(m), 1, liveLimit); err != nil {
		t.Fatal(err)
	}
	var stream bytes.Buffer
	s := migrateToUs(t, m, dir, 2<<20, &stream)
	pro, ok := s.next().(*qstream.Prologue)
	if !ok || !pro.ReturnPath() || pro.Blocks.Pages() < liveMemory/qstream.PageSize {
		t.Fatalf("prologue %+v", pro)
	}
	all, parts, ended, seen := pro.Blocks.Pages(), 0, false, map[uint64]bool{}
	for last := false; !last; {
		switch e := s.next().(type) {
		case *qstream.Page:
			seen[e.Number] = true
		case *qstream.RoundEnd:
			if parts++; parts == 1 {
				s.stop()
			}
		case *qstream.End:
			ended = true
		case *qstream.Tail:
			last = e.Last
		case *qstream.Opaque:
			t.Fatalf("opaque: %s", e.Reason)
		}
	}
	if _, err := s.parse.Next(); !errors.Is(err, io.EOF) {
		t.Errorf("after the tail: %v", err)
	}
	if !ended || uint64(len(seen)) != all {
		t.Errorf("ended %v with %d of %d pages", ended, len(seen), all)
	}
	s.answer()
	t.Logf("%d bytes, %d parts", stream.Len(), parts)
	if *captureTo != "" {
		keep(t, *captureTo, stream.Bytes())
	}
}

// shortDir is a directory with a name short enough for sockets in it.
func shortDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "t-godwit-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}
