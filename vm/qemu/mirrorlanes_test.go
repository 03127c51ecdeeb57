package qemu_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"godwit/transfer"
	"godwit/transfer/coding"
	"godwit/transfer/paths"
	"godwit/transfer/pipe"
	"godwit/transfer/wire"
	"godwit/vm"
)

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
	var mu sync.Mutex
	var conns []net.Conn
	lane := paths.Lane{Path: "way", Rate: 30 << 20, Open: func(context.Context) (net.Conn, error) {
		near, far := net.Pipe()
		mu.Lock()
		conns = append(conns, near)
		mu.Unlock()
		serving.Go(func() { there.Serve(t.Context(), far) }) //nolint:errcheck // lanes die here
		return near, nil
	}}
	way := pipe.Open(t.Context(), id, []paths.Lane{lane, lane, lane})
	disk, err := transfer.AskDisk(t.Context(), coding.Over(way), "disk0")
	if err != nil {
		t.Fatal(err)
	}
	socket := filepath.Join(source.Dir(), "copies.sock")
	forward, err := transfer.ListenNBD(t.Context(), socket, map[string]transfer.Disk{"disk0": disk}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer forward.Close()
	stop := make(chan struct{})
	serving.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			case <-time.After(5 * time.Millisecond):
			}
			mu.Lock()
			conns[i%len(conns)].Close()
			mu.Unlock()
		}
	})
	if err := source.StartMirror(t.Context(), vm.Mirror{Disk: "disk0", Socket: socket}); err != nil {
		t.Fatal(err)
	}
	awaitMirror(t, source, func(s vm.MirrorState) bool { return s.Ready })
	close(stop)
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
	mu.Lock()
	defer mu.Unlock()
	if len(conns) < 5 {
		t.Errorf("%d connections: too few died", len(conns))
	}
}
