package disks

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"godwit/internal/durable"
	"godwit/internal/oneline"
	"godwit/migration"
	"godwit/vm"
)

// Arrived are the files that a migration's disks come to on this host, and whether they are whole. They belong to one
// goroutine.
type Arrived struct {
	files  map[string]*os.File // that were made here, by path; see Make
	failed error               // of a disk that could not be written
	marked bool                // in a file, which a person removes
}

// Make makes an empty file of that size, where none is. It is open from before anything is written to it until the
// guest has landed: of a write that came to nothing the kernel tells each descriptor once, and one that is opened later
// nothing (fsync(2)).
func (a *Arrived) Make(path string, size int64) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	if err := f.Truncate(size); err != nil {
		return errors.Join(err, f.Close())
	}
	if a.files == nil {
		a.files = map[string]*os.File{}
	}
	a.files[path] = f
	return nil
}

// Files are those that were made, by path.
func (a *Arrived) Files() map[string]*os.File { return a.files }

// Close is for when nobody writes to them any more.
func (a *Arrived) Close() {
	for _, f := range a.files {
		f.Close()
	}
}

// Sync puts on this host's storage what the source will drop when it hears that the guest has landed. QEMU's own
// flushes follow the guest's only. What could not be written once is not there, though a second sync says nothing of
// it: the source keeps its own, for a person. That is noted, and written to mark, until a person removes that file:
// another sync, or another agent's, would go well.
func (a *Arrived) Sync(all []vm.Disk, plan migration.Plan, mark string, note func(string)) error {
	if err := a.unsynced(mark); err != nil {
		return err
	}
	for _, d := range all {
		f, opened := a.files[d.Path], false
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
			a.failed = fmt.Errorf("disk %s is not whole on %s, whose storage failed to write it; as it was at the switch it is on %s, and stays there: bring the guest's data to safety, and remove the file %s on %s when that copy may go: %w",
				d.ID, plan.To, plan.From, mark, plan.To, err)
			note(a.failed.Error())
			return a.tell(mark)
		}
		if err := durable.SyncDir(filepath.Dir(d.Path)); err != nil {
			return fmt.Errorf("sync disk %s: %w", d.ID, err)
		}
	}
	return nil
}

// tell is that a disk is not whole here, which it writes down: on the disk, as a host with such a storage is soon rebooted.
// What may not be there is removed, and written again.
func (a *Arrived) tell(mark string) error {
	err := durable.WriteFile(mark, []byte(oneline.Of(a.failed.Error())+"\n"))
	if a.marked = err == nil; err != nil {
		os.Remove(mark) //nolint:errcheck // it may not be there
	}
	return errors.Join(a.failed, err)
}

// unsynced is that a disk is not whole here, and no person has said yet that the copy at the source may go.
func (a *Arrived) unsynced(mark string) error {
	switch data, err := os.ReadFile(mark); {
	case err == nil:
		if a.marked = true; a.failed == nil { // an earlier agent's
			a.failed = errors.New(strings.TrimSpace(string(data)))
		}
	case !errors.Is(err, fs.ErrNotExist): // that it is gone alone is a person's word
		return errors.Join(a.failed, err)
	case a.failed != nil && !a.marked: // such a storage may not have taken it
		return a.tell(mark)
	case a.marked:
		a.failed, a.marked = nil, false
		a.Close() // what they had to tell was heard
		a.files = nil
	}
	return a.failed
}
