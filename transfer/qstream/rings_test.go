package qstream_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/klauspost/compress/zstd"

	"godwit/transfer/qstream"
)

type ring struct{ avail, used uint64 }

func ringsOf(devices []byte, most int) (out []ring) {
	qstream.Rings(devices, func(avail, used uint64) bool {
		out = append(out, ring{avail, used})
		return len(out) < most
	})
	return out
}

// TestRings: each QEMU has the addresses where they are looked for, and something of its own behind the last.
func TestRings(t *testing.T) {
	names, err := filepath.Glob("testdata/*.zst")
	if err != nil || len(names) == 0 {
		t.Fatal(names, err)
	}
	for _, name := range names {
		devices := devicesOf(t, name)
		at := bytes.Index(devices, []byte("\x05\x11virtio/virtqueues")) + 23
		const size = 1024 * 16
		if at < 23 || !bytes.Equal(devices[at:at+size], make([]byte, size)) || !bytes.HasPrefix(devices[at+size:], []byte("\x05\x12virtio/extra_state")) {
			t.Fatalf("%s: no rings of a device without a driver at %d", name, at)
		}
		if got := ringsOf(devices, 10); got != nil {
			t.Errorf("%s: rings of a device without a driver: %v", name, got)
		}
		set := func(queue int, r ring) {
			binary.BigEndian.PutUint64(devices[at+16*queue:], r.avail)
			binary.BigEndian.PutUint64(devices[at+16*queue+8:], r.used)
		}
		want := []ring{{0x1000, 0x1234}, {1<<40 + 5, 1 << 41}, {7, 8}}
		set(0, want[0])
		set(1, ring{0, 5}) // of a driver that is not ready
		set(2, ring{5, 0})
		set(600, want[1])
		set(1023, want[2])
		if got := ringsOf(devices, 10); !slices.Equal(got, want) {
			t.Errorf("%s: %x, should be %x", name, got, want)
		}
		if got := ringsOf(devices, 2); !slices.Equal(got, want[:2]) {
			t.Errorf("%s: %x after the second was the last wanted", name, got)
		}
		if got := ringsOf(devices[:at+size-1], 10); got != nil {
			t.Errorf("%s: %x of a part", name, got)
		}
		if got := ringsOf(slices.Concat(devices, devices), 10); !slices.Equal(got, slices.Concat(want, want)) {
			t.Errorf("%s: %x of two devices", name, got)
		}
	}
}

// devicesOf are those of a capture.
func devicesOf(t *testing.T, name string) []byte {
	t.Helper()
	packed, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	r, err := zstd.NewReader(bytes.NewReader(packed))
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	p := qstream.NewParser(r)
	for {
		event, err := p.Next()
		if errors.Is(err, io.EOF) {
			t.Fatal("no tail")
		}
		if err != nil {
			t.Fatal(err)
		}
		if tail, ok := event.(*qstream.Tail); ok && tail.Last {
			return slices.Clone(tail.Whole[:tail.Devices])
		}
	}
}

// TestAt: a PC's memory is its largest block, in two parts where it is large.
func TestAt(t *testing.T) {
	for _, c := range []struct {
		machine string
		memory  int64
		address uint64
		page    uint64 // of the block
		ok      bool
	}{
		{"pc-q35-10.0", 1 << 30, 0, 0, true},
		{"pc-q35-10.0", 1 << 30, 4097, 1, true},
		{"pc-q35-10.0", 1 << 30, 1<<30 - 1, 1<<18 - 1, true},
		{"pc-q35-10.0", 1 << 30, 1 << 30, 0, false},
		{"pc-q35-10.0", 4 << 30, 4<<30 + 4096, 1<<19 + 1, true},
		{"pc-q35-10.0", 4 << 30, 6 << 30, 0, false},
		{"pc-q35-10.0", 2816<<20 - 4096, 2816<<20 - 8192, 2816<<8 - 2, true},
		{"pc-q35-10.0", 8 << 30, 2<<30 - 1, 1<<19 - 1, true},
		{"pc-q35-10.0", 8 << 30, 2 << 30, 0, false},
		{"pc-q35-10.0", 8 << 30, 0xfff00000, 0, false},
		{"pc-i440fx-7.2", 4 << 30, 4 << 30, 3 << 18, true},
		{"pc-i440fx-7.2", 4 << 30, 0xc0000000, 0, false},
		{"pc-i440fx-7.2", 4 << 30, 1<<64 - 1, 0, false},
	} {
		blocks, err := qstream.Layout([]qstream.Block{{Name: "rom", Length: 8192}, {Name: "pc.ram", Length: c.memory}, {Name: "vga", Length: 1 << 20}})
		if err != nil {
			t.Fatal(err)
		}
		p := &qstream.Prologue{Machine: c.machine, Blocks: blocks}
		page, ok := p.At(c.address)
		if ok != c.ok || ok && page != c.page+2 {
			t.Errorf("%s with %d bytes: %x is in page %d, %v; should be %d, %v", c.machine, c.memory, c.address, page, ok, c.page+2, c.ok)
		}
	}
}
