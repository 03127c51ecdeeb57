package agent

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"

	"godwit/agent/capable"
	"godwit/agent/care"
	"godwit/agent/disks"
	"godwit/agent/lanes"
	"godwit/agent/peer"
	"godwit/agent/talk"
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
	d := m.work.guest.Held().Description
	if len(d.Disks) == 0 {
		return nil
	}
	sizes, _, err := capable.DiskSizes(d, m.work.preparation.Facts)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(m.a.config.StatePath("disks"), 0o700); err != nil {
		return fmt.Errorf("make disks of guest %s: %w", m.plan.Guest, err)
	}
	made := make([]vm.Disk, len(d.Disks))
	for i, disk := range d.Disks {
		path := m.a.diskPath(m.plan.Guest, m.plan.Epoch, disk.ID)
		if err := m.work.arrived.Make(path, sizes[i]); err != nil { // what was there was set aside, see setEarlierAside
			return fmt.Errorf("make disk %s of guest %s: %w", disk.ID, m.plan.Guest, err)
		}
		made[i] = vm.Disk{ID: disk.ID, Path: path, Format: "raw", Size: sizes[i], ReadOnly: isReadOnly(m.work.preparation.Facts, disk.ID)}
	}
	m.work.guest.Remember(func(h *care.Held) { h.Description.Disks = made }) // an abort may write it down meanwhile
	return nil
}

func (m *incoming) diskSocket() string {
	return filepath.Join(m.work.guest.Held().Dir, "disks-in.sock")
}

// exportDisks has the waiting QEMU take disks in, but for those that it has read-only.
func (m *incoming) exportDisks(ctx context.Context) error {
	g := m.work.guest
	if len(g.Held().Description.Disks) == 0 {
		return nil
	}
	blocks, err := blocksOf(g.Machine())
	if err != nil {
		return err
	}
	var ids []string
	for _, d := range g.Held().Description.Disks {
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
		Plan: m.plan, Key: m.work.preparation.LaneKey, Disks: m.work.guest.Held().Description.Disks, Files: m.work.arrived.Files(), Socket: m.diskSocket(), Log: m.a.log,
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
	if !slices.ContainsFunc(g.Held().Description.Disks, func(d vm.Disk) bool { return !d.ReadOnly }) {
		return nil
	}
	blocks, err := blocksOf(g.Machine())
	if err != nil {
		return err
	}
	return m.rec.Timed("end disk exports", func() error { return blocks.EndExports(ctx) })
}

// syncDisks puts on this host's storage what came to it.
func (m *incoming) syncDisks() error {
	ours := slices.DeleteFunc(slices.Clone(m.work.guest.Held().Description.Disks), func(d vm.Disk) bool { return !m.a.ours(d) })
	return m.work.arrived.Sync(ours, m.plan, m.unsyncedFile(), m.rec.NoteOnce)
}

// unsyncedFile says of a migration that a disk which it brought is not whole here, until a person removes it.
func (m *incoming) unsyncedFile() string { return m.a.config.StatePath("unsynced-" + m.plan.ID) }
