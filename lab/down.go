package lab

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"

	"godwit/lab/topo"
	"godwit/netstate/netns"
)

var labName = regexp.MustCompile(`^gw([0-9a-f]{4})-`)

// Down removes what the labs with these ids made, or every lab of this machine if
// none is given, and tells which.
func Down(_ context.Context, ids []string, w io.Writer) error {
	if len(ids) == 0 {
		found, err := Found()
		if err != nil {
			return err
		}
		ids = found
	}
	var errs []error
	for _, id := range ids {
		dir := filepath.Join(os.TempDir(), "godwit-lab-"+id)
		err := errors.Join(topo.Remove(id), unhurt(id, dir), os.RemoveAll(dir))
		if err == nil {
			fmt.Fprintln(w, "removed lab", id)
		}
		errs = append(errs, err)
	}
	if len(ids) == 0 {
		fmt.Fprintln(w, "no lab is here")
	}
	return errors.Join(errs...)
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
		if id := filepath.Base(d)[len("godwit-lab-"):]; len(id) == 4 {
			add(id)
		}
	}
	return out, nil
}
