package agent

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"godwit/internal/durable"
	"godwit/migration"
	"godwit/vm"
)

// ours says whether a disk's file is one that migrations made, or the lab.
func (a *Agent) ours(d vm.Disk) bool { return filepath.Dir(d.Path) == a.config.StatePath("disks") }

// dropDisks removes what makeDisks made, by its names alone.
func (m *incoming) dropDisks() error { return m.a.removeDisks(m.madeDisks()) }

func (m *incoming) madeDisks() (made []vm.Disk) {
	for _, d := range m.work.preparation.Description.Disks {
		made = append(made, vm.Disk{ID: d.ID, Path: m.a.diskPath(m.plan.Guest, m.plan.Epoch, d.ID)})
	}
	return made
}

// setDisksAside keeps what a guest wrote to its disks here, and which is given up, under names that
// no migration's disks have: the guest may come again with the same epoch.
func (m *incoming) setDisksAside() error {
	var errs []error
	for _, d := range m.madeDisks() {
		switch kept, err := setAside(d.Path, m.plan.ID); {
		case err == nil:
			m.rec.Note(fmt.Sprintf("its disk %s, as the guest left it on %s, is kept there, in %s", d.ID, m.plan.To, kept))
		case !errors.Is(err, fs.ErrNotExist): // else it was set aside already
			errs = append(errs, fmt.Errorf("keep disk %s of guest %s: %w", d.ID, m.plan.Guest, err))
		}
	}
	return errors.Join(errs...)
}

// disksFree refuses disks whose files would be those of another guest's. The caller holds a.mu.
func (m *incoming) disksFree() error {
	for _, d := range m.madeDisks() {
		if other := m.a.whoseDisk(d.Path); other != "" {
			return &migration.Problem{Code: migration.CodeUsage, Text: fmt.Sprintf(
				"guest %s: the file of its disk %s would be %s on host %s, which is that of guest %s; give one of their disks another id", m.plan.Guest, d.ID, d.Path, m.a.config.Host, other)}
		}
	}
	return nil
}

// setEarlierAside keeps disks that lie where the guest's are to come. Epochs begin again where a guest is
// started anew, so one may be of an earlier stay that ended with this host, and what was written then be
// nowhere else. It is done before the journal says that anything is made here: what has these names afterwards
// is this migration's own, to a later agent too.
func (m *incoming) setEarlierAside() error {
	for _, d := range m.madeDisks() {
		kept, err := setAside(d.Path, "before."+m.plan.ID)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return fmt.Errorf("keep an earlier disk %s of guest %s: %w", d.ID, m.plan.Guest, err)
		}
		text := fmt.Sprintf("an earlier disk %s of the guest was on %s, and is kept there, in %s: remove it when nobody needs it", d.ID, m.plan.To, kept)
		m.a.log.Warn(text, "migration", m.plan.ID, "guest", m.plan.Guest)
		m.rec.Note(text)
	}
	return nil
}

// whoseDisk is the guest of this host, or on its way here, whose disk has that path: where ids of disks
// look as if they began with an epoch, the names of two guests' may be the same. The caller holds a.mu.
func (a *Agent) whoseDisk(path string) string {
	at := func(d vm.Disk) bool { return d.Path == path }
	for _, g := range a.guests.All() {
		if h := g.Held(); slices.ContainsFunc(h.Description.Disks, at) {
			return h.Description.Name
		}
	}
	for _, m := range a.incoming {
		if slices.ContainsFunc(m.madeDisks(), at) {
			return m.plan.Guest
		}
	}
	return ""
}

// setAside gives a disk's file a name that no migration's disks have, and that `doctor --clean` leaves
// alone: PATH.WHY.raw, where why ends in the migration's id.
func setAside(path, why string) (kept string, err error) {
	kept = asidePath(path, why)
	if _, err := os.Lstat(path); err != nil {
		return "", err
	}
	switch _, err := os.Lstat(kept); {
	case err == nil:
		return "", fmt.Errorf("%s is there already; move it away", kept)
	case !errors.Is(err, fs.ErrNotExist):
		return "", err
	}
	if err := os.Rename(path, kept); err != nil {
		return "", err
	}
	return kept, durable.SyncDir(filepath.Dir(path)) // or a host that loses its power has it by its old name again, and may remove it
}

func asidePath(path, why string) string { return strings.TrimSuffix(path, ".raw") + "." + why + ".raw" }

// asTheyLie are disks that setDisksAside may have set aside, with the paths that they have.
func (m *incoming) asTheyLie(disks []vm.Disk) []vm.Disk {
	disks = slices.Clone(disks)
	for i := range disks {
		kept := asidePath(disks[i].Path, m.plan.ID)
		if _, err := os.Lstat(kept); err == nil {
			disks[i].Path = kept
		}
	}
	return disks
}

// removeDisks removes those that are ours, for good: none comes back with a host that loses its power. Others are their
// owner's to keep.
func (a *Agent) removeDisks(disks []vm.Disk) error {
	disks = slices.DeleteFunc(slices.Clone(disks), func(d vm.Disk) bool { return !a.ours(d) })
	var err error
	for _, d := range disks {
		if gone := os.Remove(d.Path); gone != nil && !errors.Is(gone, fs.ErrNotExist) {
			err = errors.Join(err, fmt.Errorf("remove disk %s: %w", d.ID, gone))
		}
	}
	if len(disks) == 0 {
		return nil
	}
	if lost := durable.SyncDir(a.config.StatePath("disks")); lost != nil && !errors.Is(lost, fs.ErrNotExist) {
		err = errors.Join(err, fmt.Errorf("remove disks: %w", lost))
	}
	return err
}
