package disks

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"godwit/migration"
	"godwit/transfer"
	"godwit/transfer/nbd"
)

// Disks to which their guest cannot write are copied by mirrors, as others are. But the QEMU that waits has them
// read-only too, and serves no disk as writable that it has so: the agent itself takes them in, and writes their files.
// What it has then is compared with what was sent, before memory is copied.

// hear has what is sent of read-only disks heard.
func (s *Source) hear(granted map[string]transfer.Disk) {
	s.sent = map[string]*nbd.Digest{}
	for _, d := range s.Disks {
		if to := granted[d.ID]; d.ReadOnly {
			s.sent[d.ID] = &nbd.Digest{}
			to.Heard = s.sent[d.ID]
			granted[d.ID] = to
		}
	}
}

// Sums are of what was sent of each read-only disk, by its ID: SHA-256, see nbd.Digest. Nothing of them is sent after that.
func (s *Source) Sums() map[string][]byte {
	sums := map[string][]byte{}
	for id, sent := range s.sent {
		sums[id] = sent.Sum()
	}
	return sums
}

// Compare is an error where a read-only disk is not here as it was sent: sums are the source's Sums.
func (k *Intake) Compare(sums map[string][]byte) error {
	host := k.Plan.To
	for _, d := range k.disks {
		if d == nil {
			continue
		}
		if sent, told := sums[d.id]; !told || !bytes.Equal(sent, d.heard.Sum()) {
			return &migration.Problem{Code: migration.CodePath, Text: fmt.Sprintf(
				"migrate guest %s: of its disk %s host %s has not what %s sent (by SHA-256); see whether the storage of %s is well, then try again", k.Plan.Guest, d.id, host, k.Plan.From, host)}
		}
	}
	return nil
}

// fixedDisk is the file of a read-only disk while it comes.
type fixedDisk struct {
	id    string
	size  int64
	file  *os.File
	heard nbd.Digest

	mu     sync.Mutex
	sealed bool
}

// errSealed answers who still writes to a disk of which its guest may read.
var errSealed = errors.New("the guest has this disk by now")

// seal lets nobody write to it any more; nil is none of ours.
func (d *fixedDisk) seal() {
	if d == nil {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.sealed = true
}

func (d *fixedDisk) ReadAt(p []byte, at int64) (int, error) { return d.file.ReadAt(p, at) }

func (d *fixedDisk) WriteAt(p []byte, at int64) (int, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.sealed {
		return 0, errSealed
	}
	return d.file.WriteAt(p, at)
}

// Zero makes a hole where the file system has them. It makes none where there is one.
func (d *fixedDisk) Zero(at, length int64) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.sealed {
		return errSealed
	}
	err := d.punch(at, length)
	if !errors.Is(err, syscall.EOPNOTSUPP) {
		return err
	}
	for zeros := make([]byte, min(length, 1<<20)); length > 0; {
		n, err := d.file.WriteAt(zeros[:min(length, int64(len(zeros)))], at)
		if err != nil {
			return err
		}
		at, length = at+int64(n), length-int64(n)
	}
	return nil
}

// punch makes a hole, where there is none. The file may be closed meanwhile, as the migration is undone, and its
// descriptor be another file's then: not before this is done.
func (d *fixedDisk) punch(at, length int64) (err error) {
	file, err := d.file.SyscallConn()
	if err != nil {
		return err
	}
	closed := file.Control(func(of uintptr) {
		fd := int(of)
		if data, found := unix.Seek(fd, at, unix.SEEK_DATA); errors.Is(found, unix.ENXIO) || found == nil && data >= at+length {
			return
		}
		err = unix.Fallocate(fd, unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, at, length)
	})
	return errors.Join(closed, err)
}
