package sample

import (
	"errors"
	"io"
	"os"
	"syscall"

	"golang.org/x/sys/unix"

	"godwit/transfer/coding"
)

// Of a disk's file parts are read, spread evenly over it, each of partSize bytes.
const parts, partSize = 16, 64 << 10

// Disk is how many bytes a disk holds, and how many those take on their way over a link of so many bytes per second (0:
// not known), as far as its file and a few parts of it tell. Holes are nothing, nor is room that was only set aside. Of
// one that is no file, such as a block device, or that cannot be opened, nothing is known: 0.
func Disk(path string, link float64) (holds, packed int64) {
	info, err := os.Stat(path)
	if err != nil || !info.Mode().IsRegular() {
		return 0, 0
	}
	f, err := os.Open(path)
	if err != nil {
		return 0, 0
	}
	defer f.Close()
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return 0, 0
	}
	holds = min(data(f, info.Size()), st.Blocks*512) // stat(2)
	return holds, int64(float64(holds) * coding.Foresee(read(f, info.Size()), link))
}

// pieces is how many pieces of data are counted in a file before the rest is taken to be like what was seen.
const pieces = 10000

// data is how much of a file has been written.
func data(f *os.File, size int64) (sum int64) {
	fd, at := int(f.Fd()), int64(0)
	for range pieces {
		begin, err := unix.Seek(fd, at, unix.SEEK_DATA)
		if err != nil { // no data behind
			return sum
		}
		if at, err = unix.Seek(fd, begin, unix.SEEK_HOLE); err != nil {
			return sum
		}
		sum += at - begin
	}
	return int64(float64(sum) / float64(at) * float64(size))
}

// read reads parts of the file that are no holes.
func read(f *os.File, size int64) (out [][]byte) {
	after := int64(0)
	for i := range int64(parts) {
		at, err := unix.Seek(int(f.Fd()), max(i*(size/parts), after), unix.SEEK_DATA)
		if err != nil { // no data behind
			break
		}
		part := make([]byte, partSize)
		n, err := f.ReadAt(part, at)
		if n > 0 {
			out = append(out, part[:n])
		}
		if err != nil && !errors.Is(err, io.EOF) {
			break
		}
		after = at + partSize
	}
	return out
}
