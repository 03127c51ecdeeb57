// Package spill gives a pages.Arena its storage: memory outside of Go's heap, and a file
// without a name for what does not fit.
package spill

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// Create makes a file in dir that has no name: it is gone when it is closed or its process
// ends. It is read and written with ReadAt and WriteAt and never mapped, so a full disk is
// an error (ENOSPC) and not a signal.
func Create(dir string) (*os.File, error) {
	fd, err := unix.Open(dir, unix.O_TMPFILE|unix.O_RDWR|unix.O_CLOEXEC, 0o600)
	if err == nil {
		return os.NewFile(uintptr(fd), dir+"/(unnamed)"), nil
	}
	f, err := os.CreateTemp(dir, "godwit-spill-") // a file system without O_TMPFILE
	if err != nil {
		return nil, fmt.Errorf("spill file in %s: %w", dir, err)
	}
	if err := os.Remove(f.Name()); err != nil {
		f.Close()
		return nil, fmt.Errorf("spill file in %s: %w", dir, err)
	}
	return f, nil
}

// Memory is a supply of memory outside of the heap: the collector neither scans it nor lets
// the heap grow in proportion to it. The zero value is ready.
type Memory struct{ pieces [][]byte }

// Grow maps a piece of anonymous memory; it is for pages.NewArena.
func (m *Memory) Grow(bytes int) ([]byte, error) {
	piece, err := unix.Mmap(-1, 0, bytes, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		return nil, fmt.Errorf("map %d bytes: %w", bytes, err)
	}
	m.pieces = append(m.pieces, piece)
	return piece, nil
}

// Close unmaps all pieces; nobody may use them any more.
func (m *Memory) Close() error {
	for _, piece := range m.pieces {
		if err := unix.Munmap(piece); err != nil {
			return fmt.Errorf("unmap: %w", err)
		}
	}
	m.pieces = nil
	return nil
}
