// Package mirror keeps the destination's copy of what was delivered, in a file without a
// name that is read and written, never mapped: a full disk is an error and not a signal.
package mirror

import (
	"fmt"
	"math/bits"
	"os"
	"sync"
	"syscall"

	"godwit/transfer/encode"
	"godwit/transfer/pages"
	"godwit/transfer/pages/spill"
)

// File is an encode.Mirror. Pages of zeros take no room but what an older version of them
// took.
type File struct {
	file  *os.File
	locks [pages.MaxPages]sync.Mutex // of the pages that are equal modulo their number
	pages []state
}

// state is a version, negative if the content is zeros.
type state int64

var _ encode.Mirror = (*File)(nil)

// Create makes a mirror of total pages with its file in dir.
func Create(dir string, total uint64) (*File, error) {
	if total > 1<<40 {
		return nil, fmt.Errorf("mirror of %d pages", total)
	}
	file, err := spill.Create(dir)
	if err != nil {
		return nil, fmt.Errorf("mirror: %w", err)
	}
	if err := file.Truncate(int64(total) * pages.Size); err != nil {
		file.Close()
		return nil, fmt.Errorf("mirror: %w", err)
	}
	return &File{file: file, pages: make([]state, total)}, nil
}

func (f *File) check(page uint64) error {
	if page >= uint64(len(f.pages)) {
		return fmt.Errorf("mirror has no page %d of %d", page, len(f.pages))
	}
	return nil
}

// Read copies a page to dst and returns its version; see encode.Mirror.
func (f *File) Read(page uint64, dst []byte) (version uint64, err error) {
	if err := f.check(page); err != nil {
		return 0, err
	}
	dst = dst[:pages.Size]
	lock := &f.locks[page%uint64(len(f.locks))]
	lock.Lock()
	defer lock.Unlock()
	switch s := f.pages[page]; {
	case s <= 0:
		clear(dst)
		return uint64(-s), nil
	default:
		if _, err := f.file.ReadAt(dst, int64(page)*pages.Size); err != nil {
			return 0, fmt.Errorf("read mirror: %w", err)
		}
		return uint64(s), nil
	}
}

// Write stores a page that is newer; see encode.Mirror. After an error the page's content
// is not known, and its version is what it was: the mirror is of no more use.
func (f *File) Write(page, version uint64, data []byte) (bool, error) {
	if data != nil {
		newer, err := f.WriteRun(page, version, data[:pages.Size])
		return newer != 0, err
	}
	if err := f.check(page); err != nil {
		return false, err
	}
	lock := &f.locks[page%uint64(len(f.locks))]
	lock.Lock()
	defer lock.Unlock()
	if version <= f.pages[page].version() {
		return false, nil
	}
	f.pages[page] = -state(version)
	return true, nil
}

// WriteRun stores the pages of a run that are newer; see encode.Mirror, and Write for an error.
func (f *File) WriteRun(first, version uint64, data []byte) (newer uint64, err error) {
	count := uint64(len(data) / pages.Size)
	if count == 0 || count > pages.MaxPages {
		return 0, fmt.Errorf("mirror: %d pages at once", count)
	}
	if err := f.check(first + count - 1); err != nil {
		return 0, err
	}
	for i := range f.locks { // in this order, whichever page is the first
		if (uint64(i)-first)%uint64(len(f.locks)) < count { //nolint:gosec // not negative
			f.locks[i].Lock()
			defer f.locks[i].Unlock()
		}
	}
	for i := range count {
		if version > f.pages[first+i].version() {
			newer |= 1 << i
		}
	}
	for left := newer; left != 0; {
		from := bits.TrailingZeros64(left)
		until := from + bits.TrailingZeros64(^(left >> from))
		if _, err := f.file.WriteAt(data[from*pages.Size:until*pages.Size], int64(first+uint64(from))*pages.Size); err != nil { //nolint:gosec // below the file's size
			return 0, fmt.Errorf("write mirror: %w", err)
		}
		for i := from; i < until; i++ {
			f.pages[first+uint64(i)] = state(version) //nolint:gosec // not negative
		}
		left &^= (1<<(until-from) - 1) << from
	}
	return newer, nil
}

func (s state) version() uint64 { return uint64(max(s, -s)) }

// Room is how much its file takes, bytes; 0 when it is closed.
func (f *File) Room() int64 {
	info, err := f.file.Stat()
	if err != nil {
		return 0
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return 0
	}
	return stat.Blocks * 512
}

// Peek copies to dst what was a page's content lately, or, while that is written, some of an older
// and some of the newer: whoever needs it compares. It waits for nobody, and keeps nobody waiting, as a
// thread of a low priority that has a lock does.
func (f *File) Peek(page uint64, dst []byte) error {
	if err := f.check(page); err != nil {
		return err
	}
	_, err := f.file.ReadAt(dst[:pages.Size], int64(page)*pages.Size) //nolint:gosec // below the file's size
	return err
}

// Close gives up the file.
func (f *File) Close() error { return f.file.Close() }
