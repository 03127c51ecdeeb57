package lab

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"

	"godwit/lab/topo"
	"godwit/netstate/netns"
)

var (
	labName = regexp.MustCompile(`^gw([0-9a-f]{4})-`)
	labID   = regexp.MustCompile(`^[0-9a-f]{4}$`)
)

// ValidID says whether a lab may have this id.
func ValidID(id string) bool { return labID.MatchString(id) }

// Down removes what the labs with these ids made, or every lab of this machine if
// none is given, and returns which it removed. An id that no lab here has is an error.
func Down(_ context.Context, ids []string) (removed []string, err error) {
	found, err := Found()
	if err != nil {
		return nil, err
	}
	if len(ids) == 0 {
		ids = found
	}
	removed = []string{}
	var errs []error
	for _, id := range ids {
		if !ValidID(id) || !slices.Contains(found, id) {
			errs = append(errs, fmt.Errorf("lab %s: no such lab is on this machine", id))
			continue
		}
		dir := filepath.Join(os.TempDir(), "godwit-lab-"+id)
		err := errors.Join(topo.Remove(id), unhurt(id, dir), os.RemoveAll(dir))
		if err == nil {
			removed = append(removed, id)
		}
		errs = append(errs, err)
	}
	return removed, errors.Join(errs...)
}

// Found lists the ids of labs that have something on this machine.
func Found() ([]string, error) {
	names, err := netns.List("gw")
	if err != nil {
		return nil, err
	}
	dirs, err := filepath.Glob(filepath.Join(os.TempDir(), "godwit-lab-*"))
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
		if id := filepath.Base(d)[len("godwit-lab-"):]; ValidID(id) {
			add(id)
		}
	}
	return out, nil
}
