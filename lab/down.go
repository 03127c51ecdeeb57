package lab

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"syscall"
	"time"

	"godwit/internal/clock"
	"godwit/lab/hostroom"
	"godwit/lab/topo"
	"godwit/netstate/netns"
)

var (
	labName = regexp.MustCompile(`^gw([0-9a-f]{4})-`)
	labID   = regexp.MustCompile(`^[0-9a-f]{4}$`)
)

// ValidID says whether a lab may have this id.
func ValidID(id string) bool { return labID.MatchString(id) }

// ErrNoLab is the error of an id that no lab here has.
var ErrNoLab = errors.New("no such lab is on this machine")

// Removal is what came of taking labs down.
type Removal struct {
	Removed []string `json:"removed"` // ids
	Running []string `json:"running"` // ids of labs that run, and were left alone
}

// Down removes the labs with these ids, also such as run; if none is given, what is here of
// labs that do not run any more, and with all the others, too. A lab that runs is asked to
// end, as by Ctrl-C, and what it leaves is removed. An id that no lab here has is an error.
func Down(ctx context.Context, ids []string, all bool) (Removal, error) {
	out := Removal{[]string{}, []string{}}
	found, err := Found()
	if err != nil {
		return out, err
	}
	runs := func(id string) bool { _, ok := keeper(id); return ok }
	chosen, left, unknown := choose(found, ids, all, runs)
	out.Running = left
	var errs []error
	for _, id := range unknown {
		errs = append(errs, fmt.Errorf("lab %s: %w; see `godwit doctor`", id, ErrNoLab))
	}
	for _, id := range chosen {
		err := endKeeper(ctx, id)
		if err == nil {
			dir := filepath.Join(os.TempDir(), "godwit-lab-"+id)
			err = errors.Join(topo.Remove(id), hostroom.Free(id, dir), os.RemoveAll(dir))
		}
		if err == nil {
			out.Removed = append(out.Removed, id)
		}
		errs = append(errs, err)
	}
	return out, errors.Join(errs...)
}

// choose says which of the labs that were found are to be removed, which are left alone as
// they run, and which of the named ids no lab has.
func choose(found, named []string, all bool, runs func(id string) bool) (chosen, left, unknown []string) {
	left = []string{}
	if len(named) > 0 {
		for _, id := range named {
			if ValidID(id) && slices.Contains(found, id) {
				chosen = append(chosen, id)
			} else {
				unknown = append(unknown, id)
			}
		}
		return chosen, left, unknown
	}
	for _, id := range found {
		if !all && runs(id) {
			left = append(left, id)
		} else {
			chosen = append(chosen, id)
		}
	}
	return chosen, left, nil
}

// endTime bounds what a lab that was asked to end may take: its agents clean up, its report
// is written. After that it is removed as it stands.
const endTime = time.Minute

// endKeeper asks the process that keeps a lab, if there is one, to end, and waits until it
// has given the lab up.
func endKeeper(ctx context.Context, id string) error {
	pid, runs := keeper(id)
	if !runs {
		return nil
	}
	if err := syscall.Kill(pid, syscall.SIGTERM); err != nil && !errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("end lab %s: process %d: %w", id, pid, err)
	}
	for until := time.Now().Add(endTime); time.Now().Before(until); {
		if _, runs := keeper(id); !runs {
			return nil
		}
		if !clock.Sleep(ctx, 50*time.Millisecond) {
			return fmt.Errorf("end lab %s: it was asked to end; interrupted while it did", id)
		}
	}
	return nil
}

// RunningLab says whether a lab runs, and which process keeps it.
func RunningLab(id string) (pid int, runs bool) { return keeper(id) }

// Found lists the ids of labs that have something on this machine.
func Found() ([]string, error) {
	names, err := netns.List("gw")
	if err != nil {
		return nil, err
	}
	dirs, err := fs.Glob(os.DirFS(os.TempDir()), "godwit-lab-*") // TMPDIR is no pattern
	if err != nil {
		return nil, err
	}
	seen := map[string]bool{}
	var out []string
	add := func(id string) {
		if !seen[id] {
			seen[id] = true
			out = append(out, id)
		}
	}
	for _, n := range names {
		if m := labName.FindStringSubmatch(n); m != nil {
			add(m[1])
		}
	}
	for _, d := range dirs {
		if id := d[len("godwit-lab-"):]; ValidID(id) {
			add(id)
		}
	}
	return out, nil
}
