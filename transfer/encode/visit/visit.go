// Package visit keeps the memory of a guest that left, in a file, so that it need not
// travel when the guest comes back; and reads files whose contents a guest may have in its
// memory: that one, or what the guest was started from.
//
// The first is written while the guest leaves (Writer): pages as QEMU read them, at their
// place; pages of zeros and such as were not read are holes. A host to which a guest comes
// offers the pages of its files, each by a fast hash, and reads those that the other end
// names with their SHA-256 (encode.Known). So nothing needs to be right about a file: what
// is stale, torn or another guest's is not asked for, or is missed and travels after all.
package visit

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"

	"godwit/transfer/pages"
)

// Writer is a file that has no name yet. It is for one goroutine.
type Writer struct {
	file *os.File
	dir  string
	temp string // its name where the file system has no files without one
}

// Create begins a file in dir, which it makes.
func Create(dir string) (*Writer, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("keep memory: %w", err)
	}
	fd, err := unix.Open(dir, unix.O_TMPFILE|unix.O_RDWR|unix.O_CLOEXEC, 0o600)
	if err == nil {
		return &Writer{file: os.NewFile(uintptr(fd), dir+"/(unnamed)"), dir: dir}, nil
	}
	f, err := os.CreateTemp(dir, ".tmp-")
	if err != nil {
		return nil, fmt.Errorf("keep memory: %w", err)
	}
	return &Writer{file: f, dir: dir, temp: f.Name()}, nil
}

// maxPages bounds a guest: 4 PiB.
const maxPages = 1 << 40

// Write stores a page; an older version of it goes.
func (w *Writer) Write(page uint64, data []byte) error {
	if page >= maxPages {
		return fmt.Errorf("keep memory: page %d", page)
	}
	if _, err := w.file.WriteAt(data[:pages.Size], int64(page)*pages.Size); err != nil { //nolint:gosec // checked
		return fmt.Errorf("keep memory: %w", err)
	}
	return nil
}

// Name gives the file its name in its directory, over one that has it, and closes it.
func (w *Writer) Name(name string) error {
	if w.temp == "" {
		temp := filepath.Join(w.dir, ".tmp-"+name)
		if err := os.Remove(temp); err != nil && !errors.Is(err, os.ErrNotExist) {
			return errors.Join(fmt.Errorf("keep memory: %w", err), w.Close())
		}
		from := "/proc/self/fd/" + strconv.Itoa(int(w.file.Fd()))
		if err := unix.Linkat(unix.AT_FDCWD, from, unix.AT_FDCWD, temp, unix.AT_SYMLINK_FOLLOW); err != nil {
			return errors.Join(fmt.Errorf("keep memory: %w", err), w.Close())
		}
		w.temp = temp
	}
	if err := os.Rename(w.temp, filepath.Join(w.dir, name)); err != nil {
		return errors.Join(fmt.Errorf("keep memory: %w", err), w.Close())
	}
	w.temp = ""
	return w.Close()
}

// Close gives the file up, unless it has its name. It may be called again.
func (w *Writer) Close() error {
	err := w.file.Close()
	if errors.Is(err, os.ErrClosed) {
		return nil
	}
	if w.temp != "" {
		err = errors.Join(err, os.Remove(w.temp))
	}
	return err
}

// File is one to be read, in pages. Its methods may be called from any goroutine.
type File struct {
	file *os.File
	size int64
}

// Open opens one.
func Open(path string) (*File, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err // with the path
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = errors.New("no file")
	}
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("contents of %s: %w", path, err)
	}
	return &File{f, info.Size() / pages.Size * pages.Size}, nil
}

// Close closes the file. Content fails from then on.
func (f *File) Close() error { return f.file.Close() }

// Content reads a page.
func (f *File) Content(index uint64, dst []byte) error {
	if index >= uint64(f.size)/pages.Size { //nolint:gosec // a size
		return fmt.Errorf("no page %d", index)
	}
	_, err := f.file.ReadAt(dst[:pages.Size], int64(index)*pages.Size) //nolint:gosec // below size
	return err
}

// Hashes calls yield for the pages that are there, in runs of up to most, by rising number:
// pages.Fast of each, 0 for a page of zeros. At most total pages are read. It ends early, without an error, when yield says so.
func (f *File) Hashes(ctx context.Context, most, total int, yield func(first uint64, hashes []uint64) bool) error {
	data := make([]byte, most*pages.Size)
	for at := int64(0); at < f.size && total > 0; {
		from, until, err := f.extent(at)
		if err != nil {
			return err
		}
		for at = from; at < until && total > 0; {
			if err := ctx.Err(); err != nil {
				return err
			}
			n := min(most, total, int(min(until-at, int64(len(data)))/pages.Size))
			if _, err := f.file.ReadAt(data[:n*pages.Size], at); err != nil && !errors.Is(err, io.EOF) {
				return fmt.Errorf("read contents: %w", err)
			}
			if !yield(uint64(at)/pages.Size, hashesOf(data[:n*pages.Size])) { //nolint:gosec // not negative
				return nil
			}
			at, total = at+int64(n)*pages.Size, total-n
		}
	}
	return nil
}

// narrow is how wide a hole is that is read as if it were none: many small runs cost more.
const narrow = 32 * pages.Size

// extent is where the file has data at or after a place, whole pages, but for narrow holes;
// nothing at its end.
func (f *File) extent(at int64) (from, until int64, err error) {
	fd := int(f.file.Fd())
	from, err = unix.Seek(fd, at, unix.SEEK_DATA)
	if errors.Is(err, unix.ENXIO) {
		return f.size, f.size, nil
	}
	for next := from; err == nil && (until == 0 || next-until <= narrow); {
		if until, err = unix.Seek(fd, next, unix.SEEK_HOLE); err == nil {
			next, err = unix.Seek(fd, until, unix.SEEK_DATA)
		}
		if errors.Is(err, unix.ENXIO) { // no more data
			err = nil
			break
		}
	}
	if err != nil {
		return 0, 0, fmt.Errorf("read contents: %w", err)
	}
	from = max(from/pages.Size*pages.Size, at)
	return from, min((until+pages.Size-1)/pages.Size*pages.Size, f.size), nil
}

var zeroPage [pages.Size]byte

func hashesOf(data []byte) []uint64 {
	out := make([]uint64, len(data)/pages.Size)
	for i := range out {
		page := data[i*pages.Size : (i+1)*pages.Size]
		if bytes.Equal(page, zeroPage[:]) {
			continue
		}
		out[i] = pages.Fast(page)
	}
	return out
}
