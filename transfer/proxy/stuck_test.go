package proxy

import (
	"bytes"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"godwit/transfer/qstream"
)

// TestEndsThoughQEMUDoesNotRead: what is being written to it is given up.
func TestEndsThoughQEMUDoesNotRead(t *testing.T) {
	d, listener := waiting(t)
	defer listener.Close()
	d.mu.Lock()
	if err := d.connect(); err != nil {
		t.Fatal(err)
	}
	writing := make(chan struct{})
	go func() {
		defer d.mu.Unlock()
		close(writing)
		if _, err := d.qemu.Write(make([]byte, 64<<20)); err == nil {
			t.Error("a QEMU that does not read has read 64 MiB")
		}
	}()
	<-writing
	ended := make(chan struct{})
	go func() {
		d.Close()
		close(ended)
	}()
	select {
	case <-ended:
	case <-time.After(20 * time.Second):
		t.Error("it waits for QEMU")
	}
}

// waiting is a Destination before its first lane, and where its QEMU listens.
func waiting(t *testing.T) (*Destination, net.Listener) {
	t.Helper()
	dir := t.TempDir()
	socket := filepath.Join(dir, "in")
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	d, err := NewDestination(t.Context(), DestinationConfig{Socket: socket, Mirror: dir, Most: 1 << 30})
	if err != nil {
		t.Fatal(err)
	}
	return d, listener
}

// TestGuestLargerThanSaid: a prologue that claims more memory than the Source's agent did costs
// nothing here.
func TestGuestLargerThanSaid(t *testing.T) {
	blocks, err := qstream.Layout([]qstream.Block{{Name: "ram", Length: 1<<30 + qstream.PageSize}})
	if err != nil {
		t.Fatal(err)
	}
	head := []byte("QEVM\x00\x00\x00\x03\x07\x00\x00\x00\x02pc\x08\x00\x01\x00\x00")
	var prologue bytes.Buffer
	w := qstream.NewWriter(&prologue, &qstream.Prologue{
		Head: head, Machine: "pc", Section: 2, Blocks: blocks,
		Commands: []qstream.Command{{Code: qstream.OpenReturnPath, At: len(head) - 5}},
	})
	if err := w.Begin(); err != nil {
		t.Fatal(err)
	}
	d, listener := waiting(t)
	defer listener.Close()
	defer d.Close()
	if err := d.begin(prologue.Bytes()); err == nil || !strings.Contains(err.Error(), "at most") {
		t.Errorf("%v", err)
	}
	if d.mirror != nil {
		t.Error("it has made a place for it")
	}
}
