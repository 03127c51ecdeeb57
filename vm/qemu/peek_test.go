package qemu

import (
	"bytes"
	"encoding/binary"
	"os"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// TestPeek reads memory of this process as if it were a QEMU's: over the end of a block, and never a page that nobody wrote
// to, which would be made by that.
func TestPeek(t *testing.T) {
	m := &Memory{PID: os.Getpid()}
	var data [][]byte
	for i, name := range []string{"pc.ram", "pc.bios"} {
		block, err := unix.Mmap(-1, 0, (8-4*i)*PageSize, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_ANONYMOUS)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { unix.Munmap(block) }) //nolint:errcheck // the test's own
		m.Blocks = append(m.Blocks, Block{name, int64(uintptr(unsafe.Pointer(&block[0]))), int64(len(block))})
		data = append(data, block)
	}
	data[0][2*PageSize], data[1][3*PageSize+7] = 1, 2
	if got := m.Pages(); got != 12 {
		t.Errorf("%d pages", got)
	}
	for range 2 {
		got, err := m.Peek(t.Context(), []uint64{1, 2, 8, 11})
		if err != nil {
			t.Fatal(err)
		}
		if got[0] != nil || got[2] != nil {
			t.Error("a page that was not there is there")
		}
		if !bytes.Equal(got[1], data[0][2*PageSize:3*PageSize]) || !bytes.Equal(got[3], data[1][3*PageSize:]) {
			t.Error("other pages than were written")
		}
	}
	if _, err := m.Peek(t.Context(), []uint64{12}); err == nil {
		t.Error("a page behind the last was read")
	}
	pagemap, err := os.Open("/proc/self/pagemap")
	if err != nil {
		t.Fatal(err)
	}
	defer pagemap.Close()
	var entry [8]byte
	if _, err := pagemap.ReadAt(entry[:], m.Blocks[0].At/PageSize*8+8); err != nil || binary.NativeEndian.Uint64(entry[:])&inMemory != 0 {
		t.Errorf("a page was made by looking at it (%v)", err)
	}
}
