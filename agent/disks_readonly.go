package agent

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"godwit/agent/limits"
	"godwit/agent/peer"
	"godwit/migration"
	"godwit/transfer"
	"godwit/transfer/nbd"
	"godwit/vm"
)

// Disks to which their guest cannot write are copied by mirrors, as others are. But the QEMU that waits has them read-only too,
// and serves no disk as writable that it has so: the agent itself takes them in, and writes their files. What it has then is
// compared with what was sent, before memory is copied.

// isReadOnly says whether a guest that was told of has a disk read-only.
func isReadOnly(facts vm.Facts, id string) bool {
	return slices.ContainsFunc(facts.Disks, func(d vm.Disk) bool { return d.ID == id && d.ReadOnly })
}

// takesDisks refuses a guest with disks where the destination's agent is of an earlier release: one from before disks came by lanes answers
// none of theirs, and would have QEMU serve read-only ones.
func (m *outgoing) takesDisks() error {
	var ids []string
	for _, d := range m.work.facts.Disks {
		ids = append(ids, d.ID)
	}
	if len(ids) == 0 || m.work.accepted.ReadOnly {
		return nil
	}
	return refuses(m.plan.To, m.work.offer, migration.CodePeer, "its agent is of an earlier release, and takes disks (%s) in otherwise than they are sent; bring it to the release of %s", strings.Join(ids, ", "), m.plan.From)
}

// hearDisks has what is sent of read-only disks heard, by disk.
func (m *outgoing) hearDisks(disks map[string]transfer.Disk) map[string]*nbd.Digest {
	sent := map[string]*nbd.Digest{}
	for id, d := range disks {
		if isReadOnly(m.work.facts, id) {
			sent[id] = &nbd.Digest{}
			d.Heard = sent[id]
			disks[id] = d
		}
	}
	return sent
}

// Copied is what a source has sent of read-only disks, when all of them is there.
type Copied struct {
	Sums map[string][]byte `json:"sums"` // see nbd.Digest, by disk
}

// compareCopied has the destination say whether it has of each read-only disk what was sent. Nothing of them is sent after that.
func (m *outgoing) compareCopied(ctx context.Context) error {
	copied := Copied{map[string][]byte{}}
	for id, sent := range m.work.mirrors.sent {
		copied.Sums[id] = sent.Sum()
	}
	if len(copied.Sums) == 0 {
		return nil
	}
	patience := limits.Limit{Name: "patience", For: m.a.config.Patience}
	return patience.Do(ctx, func(ctx context.Context) error { return m.call(ctx, "disks", copied, nil) })
}

// peerDisks says whether this host has of each read-only disk what was sent.
func (a *Agent) peerDisks(r *http.Request) (any, error) {
	m, err := a.findIncoming(r)
	if err != nil {
		return nil, err
	}
	var copied Copied
	if err := peer.Decode(r, &copied); err != nil {
		return nil, err
	}
	return nil, m.diskWays().compare(m.a.config.Host, m.plan, copied)
}

// compare is an error where a disk is not here as it was sent. nil: an earlier agent took the disks in.
func (w *diskWays) compare(host string, plan migration.Plan, copied Copied) error {
	if w == nil {
		return &migration.Problem{Code: migration.CodeAgent, Text: fmt.Sprintf("migrate guest %s: the agent of %s was started again while disks were copied", plan.Guest, host)}
	}
	for _, d := range w.disks {
		if d == nil {
			continue
		}
		if sent, told := copied.Sums[d.id]; !told || !bytes.Equal(sent, d.heard.Sum()) {
			return &migration.Problem{Code: migration.CodePath, Text: fmt.Sprintf(
				"migrate guest %s: of its disk %s host %s has not what %s sent (by SHA-256); see whether the storage of %s is well, then try again", plan.Guest, d.id, host, plan.From, host)}
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

// punch makes a hole, where there is none. The file may be closed meanwhile, as the migration is undone, and its descriptor be
// another file's then: not before this is done.
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
