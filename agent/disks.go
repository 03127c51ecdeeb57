package agent

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"godwit/agent/capable"
	"godwit/agent/care"
	"godwit/agent/disks"
	"godwit/agent/journal"
	"godwit/agent/lanes"
	"godwit/agent/peer"
	"godwit/agent/talk"
	"godwit/internal/oneline"
	"godwit/migration"
	"godwit/vm"
)

// diskReserve is what disks that come leave free on the file system of the state
// directory, bytes.
const diskReserve = 512 << 20

// diskPath is the file of a guest's disk in this host's care. The epoch tells it from
// the one that the guest had here before it left and came back.
func (a *Agent) diskPath(guest string, epoch uint64, id string) string {
	return a.config.StatePath("disks", fmt.Sprintf("%s-%d-%s.raw", guest, epoch, id))
}

// blocksOf is what the hypervisor can do with disks.
func blocksOf(machine vm.Machine) (vm.Blocks, error) {
	if b, ok := machine.(vm.Blocks); ok {
		return b, nil
	}
	return nil, errors.New("this hypervisor cannot move disks")
}

// makeDisks makes an empty file for each disk, and leads the description to them.
func (m *incoming) makeDisks() error {
	d := &m.work.guest.Held.Description
	if len(d.Disks) == 0 {
		return nil
	}
	sizes, _, err := capable.DiskSizes(*d, m.work.preparation.Facts)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(m.a.config.StatePath("disks"), 0o700); err != nil {
		return fmt.Errorf("make disks of guest %s: %w", m.plan.Guest, err)
	}
	made := make([]vm.Disk, len(d.Disks))
	for i, disk := range d.Disks {
		path := m.a.diskPath(m.plan.Guest, m.plan.Epoch, disk.ID)
		f, err := makeSparse(path, sizes[i])
		if err != nil {
			return fmt.Errorf("make disk %s of guest %s: %w", disk.ID, m.plan.Guest, err)
		}
		m.work.keepOpen(path, f)
		made[i] = vm.Disk{ID: disk.ID, Path: path, Format: "raw", Size: sizes[i], ReadOnly: isReadOnly(m.work.preparation.Facts, disk.ID)}
	}
	m.work.guest.remember(func(h *care.Held) { h.Description.Disks = made }) // an abort may write it down meanwhile
	return nil
}

// makeSparse makes an empty file of that size. What was there was set aside, see setEarlierAside.
func makeSparse(path string, size int64) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := f.Truncate(size); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// keepOpen keeps a disk's file open from before anything is written to it until the guest has landed: of a write that
// came to nothing the kernel tells each descriptor once, and one that is opened later nothing (fsync(2)).
func (w *destinationWork) keepOpen(path string, f *os.File) {
	if w.disks == nil {
		w.disks = map[string]*os.File{}
	}
	w.disks[path] = f
}

func (m *incoming) diskSocket() string {
	return filepath.Join(m.work.guest.Held.Dir, "disks-in.sock")
}

// exportDisks has the waiting QEMU take disks in, but for those that it has read-only.
func (m *incoming) exportDisks(ctx context.Context) error {
	g := m.work.guest
	if len(g.Held.Description.Disks) == 0 {
		return nil
	}
	blocks, err := blocksOf(g.Machine)
	if err != nil {
		return err
	}
	var ids []string
	for _, d := range g.Held.Description.Disks {
		if !d.ReadOnly {
			ids = append(ids, d.ID)
		}
	}
	if len(ids) > 0 {
		if err := blocks.ExportDisks(ctx, m.diskSocket(), ids); err != nil {
			return err
		}
	}
	m.awaitDisks()
	return nil
}

// awaitDisks takes lanes of the disks, until the work's end.
func (m *incoming) awaitDisks() {
	w := disks.Await(m.a.ctx, disks.Expected{
		Plan: m.plan, Key: m.work.preparation.LaneKey, Disks: m.work.guest.Held.Description.Disks, Files: m.work.disks, Socket: m.diskSocket(), Log: m.a.log,
	})
	m.mu.Lock()
	defer m.mu.Unlock()
	if earlier := m.work.intake; earlier != nil {
		go earlier.Stop()
	}
	m.work.intake = w
}

// intake is what takes disks in; nil where an earlier agent began that.
func (m *incoming) intake() *disks.Intake {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.work.intake
}

// serveDisk serves a lane of a disk.
func (m *incoming) serveDisk(s *peer.Stream) {
	w := m.intake()
	if w == nil {
		lanes.Refuse(s, fmt.Sprintf("the agent of %s was started again while disks were copied", m.a.config.Host))
		return
	}
	if err := w.Serve(heardStream{s, m.noteHeard}, s.Header.Number); err != nil {
		lanes.Refuse(s, err.Error())
	}
}

// peerDisks says whether this host has of each read-only disk what was sent.
func (a *Agent) peerDisks(r *http.Request) (any, error) {
	m, err := a.findIncoming(r)
	if err != nil {
		return nil, err
	}
	var copied talk.Copied
	if err := peer.Decode(r, &copied); err != nil {
		return nil, err
	}
	w := m.intake()
	if w == nil {
		return nil, &migration.Problem{Code: migration.CodeAgent, Text: fmt.Sprintf("migrate guest %s: the agent of %s was started again while disks were copied", m.plan.Guest, a.config.Host)}
	}
	return nil, w.Compare(copied.Sums)
}

// endExports leaves the disks to the guest alone, before it runs.
func (m *incoming) endExports(ctx context.Context) error {
	g := m.work.guest
	if w := m.intake(); w != nil { // else what came to the earlier agent ended with it
		w.Seal()
	}
	if !slices.ContainsFunc(g.Held.Description.Disks, func(d vm.Disk) bool { return !d.ReadOnly }) {
		return nil
	}
	blocks, err := blocksOf(g.Machine)
	if err != nil {
		return err
	}
	return m.rec.Timed("end disk exports", func() error { return blocks.EndExports(ctx) })
}

// syncDisks puts on this host's storage what the source will drop when it hears that
// the guest has landed. QEMU's own flushes follow the guest's only. What could not be written once is
// not there, though a second sync says nothing of it: the source keeps its own, for a person.
func (m *incoming) syncDisks() error {
	if err := m.unsynced(); err != nil {
		return err
	}
	for _, d := range m.work.guest.Held.Description.Disks {
		if !m.a.ours(d) {
			continue
		}
		f, opened := m.work.disks[d.Path], false
		if f == nil { // an earlier agent made it
			var err error
			if f, err = os.Open(d.Path); err != nil {
				return fmt.Errorf("sync disk %s: %w", d.ID, err)
			}
			opened = true
		}
		err := f.Sync()
		if opened {
			err = errors.Join(err, f.Close())
		}
		if err != nil {
			return m.keepUnsynced(d, err)
		}
		if err := journal.SyncDir(filepath.Dir(d.Path)); err != nil {
			return fmt.Errorf("sync disk %s: %w", d.ID, err)
		}
	}
	return nil
}

// unsyncedFile says of a migration that a disk which it brought is not whole here, until a person removes it.
func (m *incoming) unsyncedFile() string { return m.a.config.StatePath("unsynced-" + m.plan.ID) }

// keepUnsynced remembers that a disk is not whole here, also for agents to come: another sync, or another agent's,
// would go well.
func (m *incoming) keepUnsynced(d vm.Disk, err error) error {
	path := m.unsyncedFile()
	err = fmt.Errorf("disk %s is not whole on %s, whose storage failed to write it; as it was at the switch it is on %s, and stays there: bring the guest's data to safety, and remove the file %s on %s when that copy may go: %w",
		d.ID, m.plan.To, m.plan.From, path, m.plan.To, err)
	m.rec.NoteOnce(err.Error())
	m.work.unsynced = err
	return m.writeUnsynced()
}

// writeUnsynced is that a disk is not whole here, which it writes down: on the disk, as a host with such a storage is soon rebooted.
// What may not be there is removed, and written again.
func (m *incoming) writeUnsynced() error {
	path := m.unsyncedFile()
	err := writeSynced(path, oneline.Of(m.work.unsynced.Error())+"\n")
	if m.work.unsyncedKept = err == nil; err != nil {
		os.Remove(path) //nolint:errcheck // it may not be there
	}
	return errors.Join(m.work.unsynced, err)
}

// writeSynced writes a file that a host which loses its power has.
func writeSynced(path, text string) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	return errors.Join(err, f.Sync(), f.Close(), journal.SyncDir(filepath.Dir(path)))
}

// unsynced is that a disk is not whole here, and no person has said yet that the copy at the source may go.
func (m *incoming) unsynced() error {
	switch data, err := os.ReadFile(m.unsyncedFile()); {
	case err == nil:
		if m.work.unsyncedKept = true; m.work.unsynced == nil { // an earlier agent's
			m.work.unsynced = errors.New(strings.TrimSpace(string(data)))
		}
	case !errors.Is(err, fs.ErrNotExist): // that it is gone alone is a person's word
		return errors.Join(m.work.unsynced, err)
	case m.work.unsynced != nil && !m.work.unsyncedKept: // such a storage may not have taken it
		return m.writeUnsynced()
	case m.work.unsyncedKept:
		m.work.unsynced, m.work.unsyncedKept = nil, false
		for _, f := range m.work.disks { // what they had to tell was heard
			f.Close() //nolint:errcheck // as above
		}
		m.work.disks = nil
	}
	return m.work.unsynced
}
