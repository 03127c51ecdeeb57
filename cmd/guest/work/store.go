package work

import (
	"errors"
	"fmt"
	"os"

	"godwit/lab/image/workload"

	"golang.org/x/sys/unix"
)

// memory is an anonymous mapping, outside of Go's heap.
type memory []byte

func newMemory(size int64) (memory, error) {
	size = size / workload.PageSize * workload.PageSize
	area, err := unix.Mmap(-1, 0, int(size), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		return nil, fmt.Errorf("map %d bytes: %w", size, err)
	}
	// A workload is pages of 4 KiB: a large page would be dirtied as a whole.
	_ = unix.Madvise(area, unix.MADV_NOHUGEPAGE)
	return area, nil
}

func (m memory) pages() uint32 { return uint32(len(m) / workload.PageSize) }

func (m memory) page(number uint32) []byte {
	return m[int(number)*workload.PageSize:][:workload.PageSize]
}

func (m memory) write(number uint32, fill func([]byte)) error { fill(m.page(number)); return nil }

func (m memory) read(number uint32, look func([]byte)) error { look(m.page(number)); return nil }

func (m memory) close() error { return unix.Munmap(m) }

// disk is a part of a device, past the guest's page cache where the device allows it: what
// is checked is what the disk holds.
type disk struct {
	file   *os.File
	from   int64 // bytes before it
	count  uint32
	buffer []byte // aligned as direct access wants it
}

func newDisk(path string, from, size int64) (*disk, error) {
	file, err := os.OpenFile(path, os.O_RDWR|unix.O_DIRECT, 0)
	if errors.Is(err, unix.EINVAL) {
		file, err = os.OpenFile(path, os.O_RDWR|os.O_SYNC, 0)
	}
	if errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("this guest has no disk: %w", err)
	}
	if err != nil {
		return nil, err
	}
	d := &disk{file: file, from: from, count: uint32(size / workload.PageSize)}
	end, err := file.Seek(0, 2)
	if err == nil && end < from+int64(d.count)*workload.PageSize {
		err = fmt.Errorf("%s has %d bytes: too small for %d after %d", path, end, size, from)
	}
	if err == nil {
		d.buffer, err = unix.Mmap(-1, 0, workload.PageSize, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	}
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return d, nil
}

func (d *disk) pages() uint32 { return d.count }

func (d *disk) at(number uint32) int64 { return d.from + int64(number)*workload.PageSize }

func (d *disk) write(number uint32, fill func([]byte)) error {
	fill(d.buffer)
	_, err := d.file.WriteAt(d.buffer, d.at(number))
	return err
}

func (d *disk) read(number uint32, look func([]byte)) error {
	if _, err := d.file.ReadAt(d.buffer, d.at(number)); err != nil {
		return err
	}
	look(d.buffer)
	return nil
}

func (d *disk) close() error { return errors.Join(d.file.Close(), unix.Munmap(d.buffer)) }
