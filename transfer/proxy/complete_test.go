package proxy

import (
	"bytes"
	"encoding/binary"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"

	"godwit/transfer/encode"
	"godwit/transfer/pages"
	"godwit/transfer/pages/spill"
	"godwit/transfer/paths"
	"godwit/transfer/qstream"
	"godwit/transfer/wire"
)

// TestEndWaitsForEachFrame: pages that were missed go again in a frame of their own, which may come before an older
// one that took another lane. QEMU has its end when every frame is here, and not as soon as there are as many.
func TestEndWaitsForEachFrame(t *testing.T) {
	d, loaded := destinationOf(t, 100)
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	take := func(number uint64, body []byte, missed int) {
		t.Helper()
		got, err := d.frame(number, body)
		if err != nil || len(got) != missed {
			t.Fatalf("frame %d: missed %v, %v", number, got, err)
		}
	}
	tail, size := packedTail(t)
	take(1, frameOf(1, 7, 1), 0)
	take(2, frameOf(2, 8, 1), 0)
	take(4, referenceOf(9, 8, 3), 1) // page 8 had another version
	must(d.control(wire.TopicTail, tail))
	must(d.control(wire.TopicEnd, wire.AppendEnd(nil, wire.End{Last: 4, Tail: size})))
	take(5, frameOf(5, 9, 5), 0)
	select {
	case <-loaded:
		t.Fatal("QEMU has its end, and frame 3 is still on its way")
	case <-time.After(50 * time.Millisecond):
	}
	take(3, frameOf(3, 7, 2), 0)
	must(d.control(wire.TopicEnd, wire.AppendEnd(nil, wire.End{Last: 5, Tail: size})))
	select {
	case memory := <-loaded:
		if memory[7] != 2 || memory[8] != 1 || memory[9] != 5 {
			t.Errorf("QEMU has %v", memory)
		}
	case <-time.After(20 * time.Second):
		t.Error("QEMU never had its end")
	}
}

// TestLyingTail: devices' state that is not what was said of it is refused, and QEMU has no end.
func TestLyingTail(t *testing.T) {
	packed, size := packedTail(t)
	// A zstd frame that tells its length in 8 bytes: more than a tail may have; and its last block.
	bomb := append(binary.LittleEndian.AppendUint64([]byte("\x28\xb5\x2f\xfd\xc0\x00"), wire.MaxTail+1), 1, 0, 0)
	for name, c := range map[string]struct {
		tail []byte
		size uint32
		want string
	}{
		"nothing":                 {nil, size, "tail of 0 bytes, not"},
		"noise":                   {[]byte("noise"), size, "tail: "},
		"cut short":               {packed[:len(packed)-1], size, "tail: "},
		"shorter than was said":   {packed, size + 1, "tail of"},
		"longer than was said":    {packed, size - 1, "tail of"},
		"more than a tail may be": {bomb, wire.MaxTail, zstd.ErrDecoderSizeExceeded.Error()},
	} {
		d, _ := destinationOf(t, 10)
		if err := d.control(wire.TopicTail, c.tail); err != nil {
			t.Fatal(err)
		}
		err := d.control(wire.TopicEnd, wire.AppendEnd(nil, wire.End{Tail: c.size}))
		if err == nil || !strings.Contains(err.Error(), c.want) || d.written {
			t.Errorf("%s: %v, want %q; QEMU has its end: %v", name, err, c.want, d.written)
		}
	}
	d, _ := destinationOf(t, 10)
	var memory spill.Memory // of which nothing is touched
	full, err := memory.Grow(wire.MaxTail)
	if err != nil {
		t.Fatal(err)
	}
	defer memory.Close() //nolint:errcheck // the end of the test
	d.tail = full
	if err := d.control(wire.TopicTail, []byte{1}); err == nil || !strings.Contains(err.Error(), "more than") {
		t.Errorf("a tail without end: %v", err)
	}
}

// destinationOf is one of a guest of so many pages, and the first byte of each page that its QEMU had at the end.
func destinationOf(t *testing.T, total int64) (*Destination, <-chan map[uint64]byte) {
	t.Helper()
	dir := t.TempDir()
	listener, err := net.Listen("unix", filepath.Join(dir, "qemu"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	loaded := make(chan map[uint64]byte, 1)
	go func() {
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		memory := map[uint64]byte{}
		parser := qstream.NewParser(conn)
		for {
			event, err := parser.Next()
			if err != nil {
				return
			}
			switch e := event.(type) {
			case *qstream.Page:
				memory[e.Number] = e.Data[0]
			case *qstream.End:
				loaded <- memory
			}
		}
	}()
	d, err := NewDestination(t.Context(), DestinationConfig{Identity: paths.Identity{Migration: "m"}, Socket: filepath.Join(dir, "qemu"), Mirror: dir})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() }) //nolint:errcheck // it has no lanes
	blocks, err := qstream.Layout([]qstream.Block{{Name: "ram", Length: total * pages.Size}})
	if err != nil {
		t.Fatal(err)
	}
	head := []byte{0x51, 0x45, 0x56, 0x4d, 0, 0, 0, 3, 7, 0, 0, 0, 2, 'p', 'c', 8, 0, 1, 0, 0}
	body, err := prologueBytes(&qstream.Prologue{
		Head: head, Machine: "pc", Section: 2, Blocks: blocks,
		Commands: []qstream.Command{{Code: qstream.OpenReturnPath, At: len(head) - 5}},
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := d.control(wire.TopicPrologue, body); err != nil {
		t.Fatal(err)
	}
	return d, loaded
}

// frameOf has one page, filled with a byte.
func frameOf(number, page uint64, fill byte) []byte {
	f := &pages.Frame{Number: number, Pages: []pages.Page{{Number: page, Data: bytes.Repeat([]byte{fill}, pages.Size)}}}
	body, _ := encode.NewCoder(nil, nil).Encode(nil, f, encode.Off)
	return body
}

// referenceOf is a frame with one page, which has the content that another had so many frames before.
func referenceOf(page, other, age uint64) []byte {
	part := binary.AppendUvarint(nil, 1)
	part = binary.AppendVarint(part, int64(page))       //nolint:gosec // small
	part = binary.AppendVarint(part, int64(other-page)) //nolint:gosec // small
	part = binary.AppendUvarint(part, age)
	return append(binary.AppendUvarint([]byte{2, 0}, uint64(len(part))), part...)
}

// packedTail is a device state as it is sent, and how long it is.
func packedTail(t *testing.T) ([]byte, uint32) {
	t.Helper()
	const description = `{"configuration": {}, "page_size": 4096, "devices": [{"name": "timer"}]}`
	tail := append([]byte("\x04devices"), 0, 6, 0, 0, 0)
	tail = append(append(tail, byte(len(description))), description...)
	packer, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer packer.Close()
	return packer.EncodeAll(tail, nil), uint32(len(tail)) //nolint:gosec // small
}
