package qemu_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"io"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"godwit/transfer"
	"godwit/vm"
)

// interrupted is a connection to a server whose bytes in neither direction arrive while it
// is cut.
func interrupted(t *testing.T, socket string) (conn net.Conn, cut, mend func()) {
	t.Helper()
	server, err := net.Dial("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	near, far := net.Pipe()
	through := make(chan struct{}, 1)
	through <- struct{}{}
	relay := func(w io.WriteCloser, r io.Reader) {
		defer w.Close()
		buf := make([]byte, 64<<10)
		for {
			n, err := r.Read(buf)
			<-through
			through <- struct{}{}
			if n > 0 {
				if _, err := w.Write(buf[:n]); err != nil {
					return
				}
			}
			if err != nil {
				return
			}
		}
	}
	go relay(server, far)
	go relay(far, server)
	return near, func() { <-through }, func() { through <- struct{}{} }
}

// TestMirrorOverAWayThatIsCut: a guest whose disk begins to be copied does not wait for the
// destination: not a byte has to come from there before its QEMU goes on.
func TestMirrorOverAWayThatIsCut(t *testing.T) {
	data := make([]byte, diskData)
	rand.Read(data)
	from, to := sparse(t, data, 20<<20), sparse(t, nil, 0)
	source, waiting, export := pair(t, from, to)
	// A firmware that comes to reset the disk waits for all that is under way there, as any reset does.
	if err := source.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	way, cut, mend := interrupted(t, export)
	disk, err := transfer.AskDisk(t.Context(), way, "disk0")
	if err != nil {
		t.Fatal(err)
	}
	if disk.Export.Size != diskSize {
		t.Errorf("a disk of %d bytes, want %d", disk.Export.Size, diskSize)
	}
	socket := filepath.Join(source.Dir(), "copies.sock")
	forward, err := transfer.ListenNBD(t.Context(), socket, map[string]transfer.Disk{"disk0": disk})
	if err != nil {
		t.Fatal(err)
	}
	defer forward.Close()

	cut()
	begin, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	err = source.StartMirror(begin, vm.Mirror{Disk: "disk0", Socket: socket})
	cancel()
	if err == nil {
		_, err = source.Status(t.Context())
	}
	mend()
	if err != nil {
		t.Fatalf("with the way cut: %v (%v)", err, forward.Err())
	}

	awaitMirror(t, source, func(s vm.MirrorState) bool { return s.Ready })
	if err := source.FinishMirrors(t.Context()); err != nil {
		t.Fatal(err)
	}
	noMirrors(t, source)
	if err := waiting.EndExports(t.Context()); err != nil {
		t.Fatal(err)
	}
	want, err1 := os.ReadFile(from)
	got, err2 := os.ReadFile(to)
	if err1 != nil || err2 != nil || !bytes.Equal(got, want) {
		t.Errorf("the copy differs (%v, %v)", err1, err2)
	}
}

// TestGuestRunsOnAsMirrorsBegin: what the first disk's mirror has under way over a way that is cut is waited for before
// the second begins, and not by QEMU itself.
func TestGuestRunsOnAsMirrorsBegin(t *testing.T) {
	spec, other := firmware(t), firmware(t)
	for id, data := range map[string][]byte{"disk0": bytes.Repeat([]byte{7}, 8*diskData), "disk1": nil} {
		spec.Disks = append(spec.Disks, vm.Disk{ID: id, Path: sparse(t, data, 0), Format: "raw"})
		other.Disks = append(other.Disks, vm.Disk{ID: id, Path: sparse(t, nil, 0), Format: "raw"})
	}
	other.Incoming = true
	source, waiting := start(t, spec), start(t, other)
	if err := source.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	export := filepath.Join(other.Dir, "nbd.sock")
	if err := waiting.ExportDisks(t.Context(), export, []string{"disk0", "disk1"}); err != nil {
		t.Fatal(err)
	}
	granted := map[string]transfer.Disk{}
	grant := func(id string) (cut, mend func()) {
		way, cut, mend := interrupted(t, export)
		disk, err := transfer.AskDisk(t.Context(), way, id)
		if err != nil {
			t.Fatal(err)
		}
		granted[id] = disk
		return cut, mend
	}
	cut, mend := grant("disk0")
	grant("disk1")
	socket := filepath.Join(source.Dir(), "copies.sock")
	forward, err := transfer.ListenNBD(t.Context(), socket, granted)
	if err != nil {
		t.Fatal(err)
	}
	defer forward.Close()

	cut()
	if err := source.StartMirror(t.Context(), vm.Mirror{Disk: "disk0", Socket: socket}); err != nil {
		t.Fatal(err)
	}
	for begun := time.Now(); forward.Stats().Forward == 0 && time.Since(begun) < 10*time.Second; {
		time.Sleep(time.Millisecond)
	}
	begin, cancel := context.WithTimeout(t.Context(), time.Second)
	if err := source.StartMirror(begin, vm.Mirror{Disk: "disk1", Socket: socket}); err == nil {
		t.Error("the second began beside what the first has under way")
	}
	cancel()
	ask, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	if _, err := source.Status(ask); err != nil {
		t.Errorf("QEMU waits for the way: %v", err)
	}
	cancel()
	mend()

	if err := source.StartMirror(t.Context(), vm.Mirror{Disk: "disk1", Socket: socket}); err != nil {
		t.Fatal(err)
	}
	for begun := time.Now(); ; time.Sleep(10 * time.Millisecond) {
		states, err := source.Mirrors(t.Context())
		if err == nil && len(states) == 2 && states[0].Ready && states[1].Ready {
			break
		}
		if err != nil || time.Since(begun) > 20*time.Second {
			t.Fatalf("mirrors %+v, %v", states, err)
		}
	}
	if err := source.FinishMirrors(t.Context()); err != nil {
		t.Fatal(err)
	}
	noMirrors(t, source)
}

// TestDisksAreGivenOnce: a QEMU that asks for a disk that was given to another client is
// refused it, and nothing of that is left.
func TestDisksAreGivenOnce(t *testing.T) {
	source, _, export := pair(t, sparse(t, nil, 0), sparse(t, nil, 0))
	way, _, _ := interrupted(t, export)
	disk, err := transfer.AskDisk(t.Context(), way, "disk0")
	if err != nil {
		t.Fatal(err)
	}
	socket := filepath.Join(source.Dir(), "copies.sock")
	forward, err := transfer.ListenNBD(t.Context(), socket, map[string]transfer.Disk{"disk0": disk})
	if err != nil {
		t.Fatal(err)
	}
	defer forward.Close()
	client, err := net.Dial("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	first, err := transfer.AskDisk(t.Context(), client, "disk0")
	if err != nil {
		t.Fatal(err)
	}
	defer first.Conn.Close()
	if err := source.StartMirror(t.Context(), vm.Mirror{Disk: "disk0", Socket: socket}); err == nil {
		t.Fatal("it has a disk that another has")
	}
	noMirrors(t, source)
}
