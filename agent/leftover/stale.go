package leftover

import (
	"errors"
	"io/fs"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"godwit/agent/config"
	"godwit/agent/statefile"
	"godwit/migration"
)

// guestOf is the guest that a runtime directory is named after, NAME-EPOCH.
func guestOf(dir string) string {
	if cut := strings.LastIndexByte(dir, '-'); cut > 0 && strings.Trim(dir[cut:], "-0123456789") == "" {
		return dir[:cut]
	}
	return dir
}

var (
	asideForm  = regexp.MustCompile(`(\.before)?\.m-[0-9a-f]{8}\.raw$`)
	diskIDForm = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_-]*$`)
)

// isAside says whether a migration gave a disk's file a name that no other has, to keep what is in it.
func isAside(file string) bool { return asideForm.MatchString(file) }

// diskOf is what a disk's file is named after: NAME-EPOCH-ID.raw. guest is "" where that can be read in more
// ways than one, as the names of guests and disks may look as if they ended or began with an epoch.
func diskOf(file string) (guest string, epoch uint64) {
	name := strings.TrimSuffix(asideForm.ReplaceAllString(file, ".raw"), ".raw")
	ways := 0
	for i := range name {
		if name[i] != '-' {
			continue
		}
		number, id, _ := strings.Cut(name[i+1:], "-")
		if n, err := strconv.ParseUint(number, 10, 64); err == nil && diskIDForm.MatchString(id) {
			guest, epoch = name[:i], n
			ways++
		}
	}
	if ways != 1 {
		return "", 0
	}
	return guest, epoch
}

// slack is what the times of a file and of a report may be apart, ns.
const slack = int64(5 * time.Second)

// stale proves that a disk's file is not the only copy of what its guest wrote, by a migration that says so: the guest
// left it behind, or did not come by it. "" where nothing proves it. A clock may have been stepped, so times alone are
// no proof; nor are epochs, which begin again where a guest is started anew: that it is here with a later right, or
// left by one, does not say that its disks are what this one became. A guest that came by the file's epoch more often
// than it left the file came last, and did not leave.
func (o *owners) stale(c *config.Config, e fs.DirEntry) (migrationID string) {
	info, err := e.Info()
	guest, epoch := diskOf(e.Name())
	if err != nil || guest == "" || isAside(e.Name()) {
		return ""
	}
	written, history, stays := info.ModTime().UnixNano(), o.reportsOf(c, guest), 0
	leaves := func(rep ended) bool {
		return rep.From == c.Host && rep.Outcome == migration.Completed && epoch < rep.Epoch && slices.Contains(rep.Left, e.Name())
	}
	for _, rep := range history {
		switch {
		case leaves(rep):
			stays--
		case rep.To == c.Host && rep.Outcome == migration.Completed && rep.Epoch == epoch:
			stays++
		}
	}
	if stays > 0 {
		return ""
	}
	for _, rep := range history {
		if written > rep.Ended+min(rep.Stepped, 0)+slack { // a clock that was set on may be right again since
			continue // what was written after it ended is of a later stay
		}
		stayed := rep.To == c.Host && written >= rep.Requested-slack && rep.Outcome == migration.Aborted && epoch == rep.Epoch && epoch > o.held[guest].Epoch
		if leaves(rep) || stayed {
			return rep.ID
		}
	}
	return ""
}

// ended is what matters here of a report in the history.
type ended struct {
	ID        string            `json:"id"`
	Guest     string            `json:"guest"`
	Epoch     uint64            `json:"epoch"`
	From      string            `json:"from"`
	To        string            `json:"to"`
	Outcome   migration.Outcome `json:"outcome"`
	Requested int64             `json:"requested"`
	Ended     int64             `json:"ended"`
	Stepped   int64             `json:"stepped"` // from the clock by which it ended to that by which files were written then
	Left      []string          `json:"left"`
}

// reportsOf are those of a guest's migrations, also of what is kept of them in short; none where one cannot be read
// (o.unread), as it may be of a later stay. The history is read once: that of years takes a while, and disks may be
// many.
func (o *owners) reportsOf(c *config.Config, guest string) []ended {
	if o.history == nil {
		o.history = map[string][]ended{}
		var all map[string]ended
		all, o.unread = readHistory(filepath.Join(c.State, "history"))
		for _, rep := range all {
			o.history[rep.Guest] = append(o.history[rep.Guest], rep)
		}
	}
	return o.history[guest]
}

// readHistory has each migration once, by its file's name there. An agent may be putting it away meanwhile, or be
// amending what it had put away: what is not found whole is in short by then, and what is whole counts.
func readHistory(dir string) (map[string]ended, error) {
	whole, all := map[string]ended{}, map[string]ended{}
	err := eachFile(dir, func(p string) error {
		var rep ended
		err := statefile.Read(p, &rep)
		if err == nil {
			whole[filepath.Base(p)] = rep
		}
		return err
	})
	if err == nil {
		err = eachFile(dir+"-old", func(p string) error { return statefile.Read(p, &all) })
	}
	if err != nil {
		return nil, err
	}
	maps.Copy(all, whole)
	return all, nil
}

// eachFile reads those in dir that are there still, until one cannot be read.
func eachFile(dir string, read func(path string) error) error {
	paths, err := statefile.Files(dir)
	if err != nil {
		return err
	}
	for _, p := range paths {
		if err := read(p); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}
