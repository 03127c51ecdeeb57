package qemu_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"net"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"

	"godwit/transfer"
	"godwit/transfer/coding"
	"godwit/transfer/paths"
	"godwit/transfer/pipe"
	"godwit/transfer/wire"
	"godwit/vm"
)

// mortal is a connection that breaks when so many bytes were written to it.
type mortal struct {
	net.Conn
	left int
}

func (m *mortal) Write(p []byte) (int, error) {
	if m.left -= len(p); m.left < 0 {
		m.Close()
	}
	return m.Conn.Write(p)
}

// TestMirrorOverLanes: a disk is copied whole over lanes that die while it is.
func TestMirrorOverLanes(t *testing.T) {
	data := make([]byte, 24<<20)
	rand.Read(data[:16<<20])
	from, to := sparse(t, data, 20<<20), sparse(t, nil, 0)
	source, waiting, export := pair(t, from, to)
	id := paths.Identity{Migration: "m-1/disk0", Key: wire.Key{1}}
	there := pipe.Accept(t.Context(), id)
	var serving sync.WaitGroup
	defer serving.Wait()
	serving.Go(func() {
		if unpacked, err := coding.Under(there); err == nil {
			transfer.ServeStream(t.Context(), unpacked, export, nil) //nolint:errcheck // QEMU may end its export before it has read the farewell
		}
	})
	var made atomic.Int32
	lane := paths.Lane{Path: "way", Rate: 30 << 20, Open: func(context.Context) (net.Conn, error) {
		near, far := net.Pipe()
		made.Add(1)
		serving.Go(func() { there.Serve(t.Context(), far) }) //nolint:errcheck // lanes die here
		return &mortal{near, 2 << 20}, nil
	}}
	way := pipe.Open(t.Context(), id, []paths.Lane{lane, lane, lane}, nil)
	disk, err := transfer.AskDisk(t.Context(), coding.Over(way), "disk0")
	if err != nil {
		t.Fatal(err)
	}
	socket := filepath.Join(source.Dir(), "copies.sock")
	forward, err := transfer.ListenNBD(t.Context(), socket, map[string]transfer.Disk{"disk0": disk})
	if err != nil {
		t.Fatal(err)
	}
	defer forward.Close()
	if err := source.StartMirror(t.Context(), vm.Mirror{Disk: "disk0", Socket: socket}); err != nil {
		t.Fatal(err)
	}
	awaitMirror(t, source, func(s vm.MirrorState) bool { return s.Ready })
	if err := source.FinishMirrors(t.Context()); err != nil {
		t.Fatalf("%v (%v)", err, forward.Err())
	}
	if err := waiting.EndExports(t.Context()); err != nil {
		t.Fatal(err)
	}
	want, err1 := os.ReadFile(from)
	got, err2 := os.ReadFile(to)
	if err1 != nil || err2 != nil || !bytes.Equal(got, want) {
		t.Errorf("the copy differs (%v, %v)", err1, err2)
	}
	if sent := forward.Stats().Forward; sent < 16<<20 || sent > 18<<20 {
		t.Errorf("%d bytes were sent for 16 MiB of noise and 8 of zeros", sent)
	}
	if n := made.Load(); n < 6 {
		t.Errorf("%d connections: too few died", n)
	}
}
