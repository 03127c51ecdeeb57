package agent

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"godwit/agent/config"
	"godwit/migration"
)

// Files of the agent's own are read back by later agents, and may be damaged, or changed by
// hand. What is in them is checked before it is used: names that become paths and devices,
// indices, lists. A file that cannot be meant is said in one line, and never guessed around.

// fileLimit bounds what is read of a file, bytes.
const fileLimit = 16 << 20

// errUnread says that there is a file, and that it cannot be read or meant.
var errUnread = errors.New("mend the file, or move it away")

// readJSON is the inverse of writeJSON; where value can be checked, it is. Its error is
// os.ErrNotExist where there is no file, and else errUnread, of one line.
func readJSON(path string, value any) error {
	err := readInto(path, value)
	if c, ok := value.(interface{ check() error }); err == nil && ok {
		err = c.check()
	}
	if err == nil || errors.Is(err, os.ErrNotExist) {
		return err
	}
	return fmt.Errorf("read %s: %w; %w", path, err, errUnread)
}

func readInto(path string, value any) error {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0) // a pipe in its place must not be waited for
	if err != nil {
		return err
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return errors.Join(err, errors.New("not a file"))
	}
	data, err := io.ReadAll(io.LimitReader(f, fileLimit+1))
	if err != nil {
		return err
	}
	if len(data) > fileLimit {
		return fmt.Errorf("larger than %d MiB", fileLimit>>20)
	}
	return json.Unmarshal(data, value)
}

// readEnd reads the last bytes of a file, most at most.
func readEnd(path string, most int64) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	return io.ReadAll(io.NewSectionReader(f, max(0, info.Size()-most), most))
}

// below says whether path is that of something directly in a directory named dir.
func below(path, dir string) bool {
	return filepath.IsAbs(path) && filepath.Clean(path) == path && filepath.Base(filepath.Dir(path)) == dir
}

// check says what is wrong with what was remembered of a guest. Its directory is removed
// with it, so it must be one that a guest may have.
func (h *Held) check() error {
	if err := h.Description.Check(); err != nil {
		return err
	}
	name := h.Description.Name
	switch {
	case !below(h.Dir, "guests") || !strings.HasPrefix(filepath.Base(h.Dir), name+"-"):
		return fmt.Errorf("guest %s: directory %.200q is not one of its own", name, h.Dir)
	case h.Unheard != nil && !validID(h.Unheard.Migration):
		return fmt.Errorf("guest %s: came by migration %.100q", name, h.Unheard.Migration)
	case h.Number < 0:
		return fmt.Errorf("guest %s: number %d", name, h.Number)
	case h.Active < 0 || h.Active >= len(h.Description.NICs):
		return fmt.Errorf("guest %s: active NIC %d of %d", name, h.Active, len(h.Description.NICs))
	case len(h.Taps) > 0 && len(h.Taps) != len(h.Description.NICs):
		return fmt.Errorf("guest %s: %d taps for %d NICs", name, len(h.Taps), len(h.Description.NICs))
	case slices.ContainsFunc(h.Taps, func(t string) bool { return !config.IsDevice(t) }):
		return fmt.Errorf("guest %s: taps %.100q are not devices", name, h.Taps)
	case len(h.Addresses) > mostAddresses:
		return fmt.Errorf("guest %s: %d addresses", name, len(h.Addresses))
	}
	return errors.Join(checkAddresses(h.Addresses), checkToDrop(h.ToDrop))
}

func checkAddresses(all []migration.Address) error {
	for _, a := range all {
		if !a.Prefix.IsValid() {
			return errors.New("an address that is none")
		}
		if a.Handover != "" && !validID(a.Handover) {
			return fmt.Errorf("address %s given by %.100q, which is no migration", a.Prefix.Addr(), a.Handover)
		}
	}
	return nil
}

// detourForm is that of a detour's id: the migration that made it, and, where it leads from
// a third host, that host.
var detourForm = regexp.MustCompile(`^m-[0-9a-f]{8}(-[^/\s]{1,255})?$`)

// mostDetours bounds those of a host.
const mostDetours = 4096

// writtenDetours are detours.json.
type writtenDetours map[string]*detour

func (all writtenDetours) check() error {
	if len(all) > mostDetours {
		return fmt.Errorf("%d detours", len(all))
	}
	for id, d := range all {
		if d == nil || d.ID != id || !detourForm.MatchString(id) {
			return fmt.Errorf("detour %.100q: its id is not one", id)
		}
		if err := d.check(); err != nil {
			return fmt.Errorf("detour %s: %w", id, err)
		}
	}
	return nil
}

func (d *detour) check() error {
	taps := slices.Clone(d.Taps)
	entries := len(d.Away) + len(d.Visiting) + len(d.Coming) + len(d.Standing)
	addrs := d.addresses()
	for _, a := range slices.Concat(d.Away, d.Standing) {
		taps = append(taps, a.Tap)
	}
	for _, v := range slices.Concat(d.Visiting, d.Coming) {
		taps, addrs = append(append(taps, v.Tap, v.Tunnel), v.Taps...), append(addrs, v.Addr)
	}
	if d.OffLink != nil {
		taps, addrs = append(taps, d.OffLink.Tap), append(addrs, d.OffLink.Routers...)
		if err := checkHeard(d.OffLink.Heard); err != nil {
			return err
		}
	}
	for _, sent := range d.Sent {
		entries += len(sent)
		for _, a := range sent {
			taps, addrs = append(taps, a.Tap), append(addrs, a.Addr)
		}
	}
	switch {
	case !config.IsGuestName(d.Guest):
		return fmt.Errorf("guest %.100q: not a name", d.Guest)
	case d.Tunnel.Name != "" && (!config.IsDevice(d.Tunnel.Name) || !below(filepath.Join(d.Tunnel.Dir, d.Tunnel.Name), "tunnels")):
		return fmt.Errorf("tunnel %.100q in %.200q is not one of ours", d.Tunnel.Name, d.Tunnel.Dir)
	case entries > 8*mostAddresses || len(d.Taps) > mostAddresses:
		return fmt.Errorf("%d addresses, %d taps", entries, len(d.Taps))
	}
	for _, t := range taps {
		if t != "" && !config.IsDevice(t) {
			return fmt.Errorf("%.100q is not a device", t)
		}
	}
	for _, a := range addrs {
		if !a.IsValid() {
			return errors.New("an address that is none")
		}
	}
	return nil
}

// check says what is wrong with a note that a guest was taken back.
func (t *Taken) check() error {
	if !validID(t.Migration) {
		return fmt.Errorf("migration id %.100q: not one", t.Migration)
	}
	return nil
}
