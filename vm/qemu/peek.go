package qemu

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
)

// Pages is how many pages the guest's memory has, ROMs and frame buffers included.
func (m *Memory) Pages() uint64 {
	var sum uint64
	for _, b := range m.Blocks {
		sum += uint64(b.Size) / PageSize //nolint:gosec // not negative
	}
	return sum
}

// Peek reads pages of a guest that may run, by their numbers, with QEMU's blocks laid end to end. nil are those that
// QEMU has no memory for, as nobody ever wrote to them: reading them would make some (pagemap, as in Sums).
func (m *Memory) Peek(ctx context.Context, numbers []uint64) ([][]byte, error) {
	memory, pagemap, err := m.open()
	if err != nil {
		return nil, err
	}
	defer memory.Close()
	defer pagemap.Close()
	out := make([][]byte, len(numbers))
	for i, number := range numbers {
		if i%readPages == 0 && ctx.Err() != nil {
			return nil, ctx.Err()
		}
		at, ok := m.address(number)
		if !ok {
			return nil, fmt.Errorf("read memory: no page %d", number)
		}
		if out[i], err = readIfThere(memory, pagemap, at); err != nil {
			return nil, fmt.Errorf("read memory: page %d: %w", number, err)
		}
	}
	return out, nil
}

// address is where a page lies in QEMU's own memory.
func (m *Memory) address(number uint64) (int64, bool) {
	for _, b := range m.Blocks {
		own := uint64(b.Size) / PageSize //nolint:gosec // not negative
		if number < own {
			return b.At + int64(number)*PageSize, true //nolint:gosec // below a size
		}
		number -= own
	}
	return 0, false
}

// What pagemap says of a page (Linux, Documentation/admin-guide/mm/pagemap.rst).
const inMemory, swapped = 1 << 63, 1 << 62

func readIfThere(memory, pagemap io.ReaderAt, at int64) ([]byte, error) {
	if there, err := touched(pagemap, at); err != nil || !there {
		return nil, err
	}
	page := make([]byte, PageSize)
	_, err := memory.ReadAt(page, at)
	return page, err
}

// touched says whether a process has memory for the page at that address.
func touched(pagemap io.ReaderAt, at int64) (bool, error) {
	var entry [8]byte
	_, err := pagemap.ReadAt(entry[:], at/PageSize*8)
	return binary.NativeEndian.Uint64(entry[:])&(inMemory|swapped) != 0, err
}
