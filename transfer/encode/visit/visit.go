// Package visit keeps the memory of a guest that left, in a file, so that it need not
// travel when the guest comes back; and reads files whose contents a guest may have in its
// memory: that one, or what the guest was started from.
//
// The first is written while the guest leaves (Writer): pages as QEMU read them, sealed by a
// key of the host's (Key); pages of zeros and such as were not read are holes. A host to which a guest comes
// offers the pages of its files, each by a fast hash, and reads those that the other end
// names with their SHA-256 (encode.Known). So nothing needs to be right about a file: what
// is stale, torn or another guest's is not asked for, or is missed and travels after all.
package visit

import (
	"bytes"
	"context"
	"crypto/cipher"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"godwit/transfer/pages"
)

// File is one to be read, in pages. Its methods may be called from any goroutine.
type File struct {
	file *os.File
	size int64
	seal cipher.AEAD // nil: its pages lie as they are

	mu     sync.Mutex // of what follows
	table  []byte     // of the group that was read last; nil: of none
	group  uint64
	sealed []byte // the page that was read last, and its tag
}

// OpenKept opens what a Writer has written. The error is ErrKey where that was with another
// key: nobody can read the file any more.
func OpenKept(path string, key Key) (*File, error) {
	f, err := Open(path)
	if err != nil {
		return nil, err
	}
	if f.seal, err = key.open(f.file); err != nil {
		f.Close() //nolint:errcheck // it was read only
		return nil, fmt.Errorf("kept memory %s: %w", path, err)
	}
	return f, nil
}

// Open opens one whose pages lie as they are.
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
	return &File{file: f, size: info.Size() / pages.Size * pages.Size}, nil
}

// Close closes the file. Content fails from then on.
func (f *File) Close() error { return f.file.Close() }

// Content reads a page.
func (f *File) Content(index uint64, dst []byte) error {
	if f.seal != nil {
		return f.unseal(index, dst)
	}
	if index >= uint64(f.size)/pages.Size { //nolint:gosec // a size
		return fmt.Errorf("no page %d", index)
	}
	_, err := f.file.ReadAt(dst[:pages.Size], int64(index)*pages.Size) //nolint:gosec // below size
	return err
}

// Hashes calls yield for the pages that are there, in runs of up to most, by rising number: pages.Fast of each, 0 for a
// page of zeros. At most total pages are read. It ends early, without an error, when yield says so.
func (f *File) Hashes(ctx context.Context, most, total int, yield func(first uint64, hashes []uint64) bool) error {
	if f.seal != nil {
		return f.sealedHashes(ctx, most, total, yield)
	}
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

// narrow is how wide a hole is that is read as if it were none, pages: many small runs cost more.
const narrow = 32

// extent is where the file has data at or after a place, whole pages, but for narrow holes;
// nothing at its end.
func (f *File) extent(at int64) (from, until int64, err error) {
	fd := int(f.file.Fd())
	from, err = unix.Seek(fd, at, unix.SEEK_DATA)
	if errors.Is(err, unix.ENXIO) {
		return f.size, f.size, nil
	}
	for next := from; err == nil && (until == 0 || next-until <= narrow*pages.Size); {
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
