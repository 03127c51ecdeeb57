package guests

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"godwit/agent/care"
	"godwit/agent/config"
	"godwit/agent/statefile"
	"godwit/migration"
	"godwit/vm"
)

// What is kept of guests that have ended here by themselves, a file for each, until one of that name is under care
// again, or comes: from then on its disks here may be old. What is written down of that one removes it (write), and so
// does whoever knows sooner.

// mostEnded bounds for how many guests that is kept: those that ended last.
const mostEnded = 100

func (s *Set) endedDir() string { return filepath.Join(filepath.Dir(s.dir), care.EndedFolder) }

func (s *Set) endedPath(name string) string { return filepath.Join(s.endedDir(), name+".json") }

// KeepEnded keeps what a guest that has ended is started again by; its QEMU must be gone. Where another of its name is
// under care by now, nothing is kept.
func (s *Set) KeepEnded(g *Guest, why string, now time.Time) error {
	s.saving.Lock()
	defer s.saving.Unlock()
	s.mu.Lock()
	here := s.byName[g.Name()]
	s.mu.Unlock()
	if here != nil && here != g {
		return nil
	}
	h := g.Held()
	e := care.Ended{Held: h, At: now, Why: why, Disks: asTheyAre(h.Description.Disks)}
	if err := e.Check(); err != nil { // of a journal's guest, of which no more is known than its name
		return err
	}
	if err := statefile.Write(s.endedPath(g.Name()), e); err != nil {
		return err
	}
	return s.boundEnded()
}

// DropEnded forgets that a guest of that name ended here, for good; there need be none.
func (s *Set) DropEnded(name string) error { return statefile.Remove(s.endedPath(name)) }

// Ended is what is kept of a guest of that name that has ended here.
func (s *Set) Ended(name string) (e care.Ended, err error) {
	err = fs.ErrNotExist
	if config.IsGuestName(name) {
		err = statefile.Read(s.endedPath(name), &e)
	}
	if err == nil && e.Held.Description.Name != name {
		err = fmt.Errorf("read %s: it is of guest %s; %w", s.endedPath(name), e.Held.Description.Name, statefile.ErrUnread)
	}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return e, &migration.Problem{Code: migration.CodeUnknownGuest, Text: fmt.Sprintf(
			"guest %.64q: nothing is kept of one of that name that ended on this host; see `godwit guest ls`", name)}
	case err != nil:
		return e, &migration.Problem{Code: migration.CodeInternal, Text: fmt.Sprintf("guest %s: %v", name, err)}
	}
	return e, nil
}

// AllEnded are those that can be read, by name, but for guests that are under care, or come.
func (s *Set) AllEnded() (out []care.Ended) {
	paths, _ := statefile.Files(s.endedDir()) // what cannot be listed, `godwit doctor` tells
	for _, p := range paths {
		var e care.Ended
		if statefile.Read(p, &e) == nil && s.NameFree(e.Held.Description.Name) == nil {
			out = append(out, e)
		}
	}
	return out
}

// boundEnded forgets the oldest.
func (s *Set) boundEnded() error {
	paths, err := statefile.Files(s.endedDir())
	if err != nil || len(paths) <= mostEnded {
		return err
	}
	at := map[string]time.Time{}
	for _, p := range paths {
		if info, err := os.Stat(p); err == nil {
			at[p] = info.ModTime()
		}
	}
	slices.SortFunc(paths, func(a, b string) int { return at[b].Compare(at[a]) })
	for _, p := range paths[mostEnded:] {
		err = errors.Join(err, statefile.Remove(p))
	}
	return err
}

// asTheyAre is what is known of the files of disks now.
func asTheyAre(disks []vm.Disk) (out []care.EndedDisk) {
	for _, d := range disks {
		is := care.EndedDisk{Path: d.Path}
		if info, err := os.Stat(d.Path); err == nil {
			is.Size, is.Written = info.Size(), info.ModTime()
			if sys, ok := info.Sys().(*syscall.Stat_t); ok {
				is.Inode = sys.Ino
			}
		}
		out = append(out, is)
	}
	return out
}

// LacksDisk is why a guest cannot be started again by the disks that it left here, "" if it can; changed is which of
// them may be another, or has been written to, since.
func LacksDisk(e care.Ended) (lacks, changed string) {
	for i, d := range e.Held.Description.Disks {
		info, err := os.Stat(d.Path)
		switch now := asTheyAre([]vm.Disk{d})[0]; {
		case err != nil:
			return fmt.Sprintf("its disk %s: %v", d.ID, err), ""
		case len(e.Held.Description.Start) > 0 && d.Format != "raw":
			return fmt.Sprintf("its disk %s is %s, and its start command opens raw ones", d.ID, d.Format), ""
		case !info.Mode().IsRegular():
			changed = fmt.Sprintf("its disk %s is no file (%s): whether somebody has written to it since is not known", d.ID, d.Path)
		case now.Size != e.Disks[i].Size || now.Inode != e.Disks[i].Inode || !now.Written.Equal(e.Disks[i].Written):
			changed = fmt.Sprintf("its disk %s (%s) is not as it left it: last written %s", d.ID, d.Path, now.Written.UTC().Format(time.DateTime+" MST"))
		}
	}
	return "", changed
}
