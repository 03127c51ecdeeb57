package qemu_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"godwit/internal/socket"
	"godwit/vm"
	"godwit/vm/qemu"
)

// ofNobody starts a QEMU that is another user's, as libvirt does, with a disk of its.
func ofNobody(t *testing.T, data []byte) (p *qemu.Process, disk string) {
	t.Helper()
	return runWith(t, "user=65534:65534", data)
}

func runWith(t *testing.T, with string, data []byte) (p *qemu.Process, disk string) {
	t.Helper()
	disk = sparse(t, data, 20<<20)
	p = theirs(t, "-run-with", with, "-machine", "q35", "-accel", "tcg", "-m", "32",
		"-blockdev", "driver=raw,node-name=system,discard=unmap,file.driver=file,file.filename="+disk, "-device", "virtio-blk-pci,drive=system")
	return p, disk
}

// TestQEMUApartSends: one that cannot open what is the agent's sends memory, as often as it is asked to, to its socket.
func TestQEMUApartSends(t *testing.T) {
	for name, with := range map[string]string{"another user's": "user=65534:65534", "in another root directory": "chroot=" + t.TempDir()} {
		t.Run(name, func(t *testing.T) { sendsApart(t, with) })
	}
}

func sendsApart(t *testing.T, with string) {
	p, _ := runWith(t, with, nil)
	if f, err := p.Facts(t.Context()); err != nil || !f.Apart {
		t.Fatalf("it is not told that it is apart: %+v, %v", f, err)
	}
	path := filepath.Join(t.TempDir(), "out.sock")
	opts := vm.MigrateOptions{URI: "unix:" + path}
	if err := p.Migrate(t.Context(), opts); err == nil || !strings.Contains(err.Error(), "no such file") {
		t.Errorf("to nobody: %v", err)
	}
	for range 2 {
		listener, err := socket.Listen(path)
		if err != nil {
			t.Fatal(err)
		}
		magic := make(chan string, 1)
		go func() {
			defer close(magic)
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			defer conn.Close()
			first := make([]byte, 4)
			io.ReadFull(conn, first) //nolint:errcheck // seen below
			magic <- string(first)
			io.Copy(io.Discard, conn) //nolint:errcheck // until it is cancelled
		}()
		opts.MaxBandwidth = 1 << 20
		if err := p.Migrate(t.Context(), opts); err != nil {
			listener.Close()
			t.Fatal(err)
		}
		if got := <-magic; got != "QEVM" {
			t.Errorf("it sent %q", got)
		}
		if err := p.CancelMigration(t.Context()); err != nil {
			t.Fatal(err)
		}
		listener.Close()
	}
	status(t, p, vm.Running)
}

// TestDiskOfAnotherUsersQEMU: it is copied over a socket that is the agent's alone.
func TestDiskOfAnotherUsersQEMU(t *testing.T) {
	data := make([]byte, diskData)
	rand.Read(data) //nolint:errcheck // it does not fail
	source, disk := ofNobody(t, data)
	to := sparse(t, nil, 0)
	spec := firmware(t)
	spec.Disks, spec.Incoming = []vm.Disk{{ID: "system", Path: to, Format: "raw"}}, true
	waiting := start(t, spec)
	if f, err := waiting.Facts(t.Context()); err != nil || f.Apart {
		t.Errorf("our own is told to be apart: %v, %v", f.Apart, err)
	}
	export := filepath.Join(spec.Dir, "nbd.sock")
	if err := waiting.ExportDisks(t.Context(), export, []string{"system"}); err != nil {
		t.Fatal(err)
	}
	mirror := vm.Mirror{Disk: "system", Socket: filepath.Join(t.TempDir(), "none.sock")}
	if err := source.StartMirror(t.Context(), mirror); err == nil || !strings.Contains(err.Error(), "no such file") {
		t.Errorf("to nobody: %v", err)
	}
	mirror.Socket = export
	for range 2 { // one that was dropped is begun again
		if err := source.DropMirrors(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := source.StartMirror(t.Context(), mirror); err != nil {
			t.Fatal(err)
		}
		awaitMirror(t, source, func(s vm.MirrorState) bool { return s.Ready })
	}
	if err := source.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := source.FinishMirrors(t.Context()); err != nil {
		t.Fatal(err)
	}
	noMirrors(t, source)
	want, err1 := os.ReadFile(disk)
	got, err2 := os.ReadFile(to)
	if err1 != nil || err2 != nil || !bytes.Equal(got, want) {
		t.Errorf("the copy differs (%v, %v)", err1, err2)
	}
}

// TestMirrorToNoNBD: a mirror of such a one to a socket on which nobody speaks NBD fails, and leaves no descriptor in
// QEMU.
func TestMirrorToNoNBD(t *testing.T) {
	p, _ := ofNobody(t, nil)
	path := filepath.Join(t.TempDir(), "out.sock")
	listener, err := socket.Listen(path)
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	heard := make(chan struct{})
	go func() {
		defer close(heard)
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		io.WriteString(conn, "no NBD, and a line of some length\n") //nolint:errcheck // seen below
		conn.(*net.UnixConn).CloseWrite()                           //nolint:errcheck // seen below
		io.Copy(io.Discard, conn)                                   //nolint:errcheck // until QEMU has none of it left
	}()
	if err := p.StartMirror(t.Context(), vm.Mirror{Disk: "system", Socket: path}); err == nil || !strings.Contains(err.Error(), "mirror disk system: ") {
		t.Errorf("%v", err)
	}
	listener.Close() // where nobody came
	<-heard
	noMirrors(t, p)
}

// TestMirrorThatIsNotAnswered: a mirror of such a one to where nobody answers it any more ends with who asked for it,
// not only once QEMU is answered, or its connection ends; and leaves no descriptor in it then.
func TestMirrorThatIsNotAnswered(t *testing.T) {
	p, _ := ofNobody(t, nil)
	path := filepath.Join(t.TempDir(), "out.sock")
	listener, err := socket.Listen(path)
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- p.StartMirror(ctx, vm.Mirror{Disk: "system", Socket: path}) }()
	conn, err := listener.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, "NBDMAGICIHAVEOPT\x00\x03"); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(conn, make([]byte, 4)); err != nil { // its flags: it waits for an answer from here on
		t.Fatal(err)
	}
	cancel()
	select {
	case err := <-done:
		if !errors.Is(err, context.Canceled) {
			t.Errorf("%v", err)
		}
	case <-time.After(15 * time.Second): // half of what QEMU is waited for where nobody bounds it
		t.Error("it is still waited for what QEMU answers")
	}
	conn.(*net.UnixConn).CloseWrite() //nolint:errcheck // seen below
	io.Copy(io.Discard, conn)         //nolint:errcheck // until QEMU has none of it left
	noMirrors(t, p)
}
