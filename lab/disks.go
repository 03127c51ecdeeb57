package lab

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"godwit/agent/config"
	"godwit/lab/scenario"
	"godwit/vm"

	"golang.org/x/sys/unix"
)

// makeDisks makes a guest's empty disks on its first host, where that host's agent keeps
// the disks that come to it; so they go when the guest moves on.
func (w *world) makeDisks(d *config.Description, g scenario.Guest, host string) error {
	dir := w.disksOf(host)
	for i, size := range g.Disks {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return fmt.Errorf("guest %s: make disk: %w", g.Name, err)
		}
		disk := vm.Disk{ID: fmt.Sprintf("disk%d", i), Format: "raw"}
		disk.Path = filepath.Join(dir, g.Name+"-1-"+disk.ID+".raw")
		f, err := os.Create(disk.Path)
		if err == nil {
			err = errors.Join(f.Truncate(size), f.Close())
		}
		if errors.Is(err, unix.EFBIG) { // ext4 takes 4 KiB less than 16 TiB
			return fmt.Errorf("guest %s: the file system of %s has no file as large as its disk of %d bytes: give it a smaller one, or set TMPDIR to a folder of another file system", g.Name, os.TempDir(), size)
		}
		if err != nil {
			return fmt.Errorf("guest %s: make disk: %w", g.Name, err)
		}
		d.Disks = append(d.Disks, disk)
	}
	return nil
}

func (w *world) disksOf(host string) string {
	return filepath.Join(w.agents[host].config.State, "disks")
}

// keepsDisks says that both hosts may have a guest's disks: no agent ended its migration on both, or the guest was
// lost.
func (w *world) keepsDisks(guest string, hosts ...string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.kept == nil {
		w.kept = map[string][]string{}
	}
	w.kept[guest] = hosts
}

// diskLeftovers names files of disks on a host whose guest lives elsewhere, and is not in doubt, or that
// are more than its guest has.
func (w *world) diskLeftovers(a *hostAgent) []string {
	files, err := os.ReadDir(w.disksOf(a.host.Name))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return []string{fmt.Sprintf("host %s: %v", a.host.Name, err)}
	}
	may := map[string]int{} // by guest
	for _, g := range w.scenario.Guests {
		if w.agentOf(g.Name) == a || slices.Contains(w.kept[g.Name], a.host.Name) {
			may[g.Name] = len(g.Disks)
		}
	}
	var left []string
	for _, f := range files {
		name := guestOfDisk(f.Name())
		if may[name]--; may[name] < 0 {
			left = append(left, fmt.Sprintf("host %s: disk %s", a.host.Name, f.Name()))
		}
	}
	return left
}

// asideForm is the end of the name of a disk that a migration set aside.
var asideForm = regexp.MustCompile(`\.m-[0-9a-f]{8}\.raw$`)

// guestOfDisk is the guest in a disk's file name, GUEST-EPOCH-DISK.raw, or GUEST-EPOCH-DISK.MIGRATION.raw.
func guestOfDisk(file string) string {
	file = asideForm.ReplaceAllString(file, "")
	for range 2 {
		file = file[:max(strings.LastIndexByte(file, '-'), 0)]
	}
	return file
}
