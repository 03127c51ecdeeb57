package journal

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// disk is what a journal needs of its file.
type disk interface {
	io.ReaderAt
	io.WriterAt
	io.Closer
	Truncate(size int64) error
	Sync() error
	Datasync() error // fdatasync(2)
}

type file struct{ *os.File }

func (f file) Datasync() error {
	for {
		if err := unix.Fdatasync(int(f.Fd())); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

// mend removes what follows the last record, and the room with it. After a sync that failed that is not enough. What it
// was to bring may be on the disk, and come back with a host that loses its power. And what it did not bring, records
// before it too, the kernel takes for written (fsync(2), EIO): the next sync would say that all is well, with a hole
// before the record that it brought, which is then dropped as one that was cut off. So those are written once more, and
// synced.
func (j *File) mend() error {
	if err := j.name(); err != nil {
		return err
	}
	if err := j.f.Truncate(j.length); err != nil {
		return err
	}
	j.size = j.length
	if !j.unsure {
		return nil
	}
	records := make([]byte, j.length-j.durable)
	if _, err := j.f.ReadAt(records, j.durable); err != nil {
		return err
	}
	for line := range bytes.Lines(records) {
		if _, err := record(bytes.TrimSuffix(line, []byte{'\n'})); err != nil { // the kernel has read it anew
			return fmt.Errorf("what the disk did not take: %w", err)
		}
	}
	if _, err := j.f.WriteAt(records, j.durable); err != nil {
		return err
	}
	if err := j.f.Sync(); err != nil {
		return err
	}
	j.durable, j.unsure = j.length, false
	return nil
}
