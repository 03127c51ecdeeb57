package netstate

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"godwit/netstate/dump"

	"github.com/vishvananda/netlink"
)

// guestTap is how the taps that agents make are called; a tunnel's name goes on with "-".
var guestTap = regexp.MustCompile(`^gwt[0-9]+[a-z]$`)

// A TapFound is a guest's tap in this namespace.
type TapFound struct {
	Name string
	QEMU int // a QEMU that has it open; 0: none
}

// Taps lists the taps of guests in this namespace.
func Taps() ([]TapFound, error) {
	links, err := dump.Links()
	if err != nil {
		return nil, fmt.Errorf("list taps: %w", err)
	}
	var out []TapFound
	for _, l := range links {
		if l.Type() == "tuntap" && guestTap.MatchString(l.Attrs().Name) {
			out = append(out, TapFound{Name: l.Attrs().Name})
		}
	}
	if len(out) == 0 {
		return nil, nil
	}
	users, err := tapUsers()
	for i := range out {
		out[i].QEMU = users[out[i].Name]
	}
	return out, err
}

// RemoveTap deletes a guest's tap; who has it open reads nothing more from it.
func RemoveTap(name string) error {
	if !guestTap.MatchString(name) {
		return fmt.Errorf("remove tap %s: not a guest's", name)
	}
	link, err := netlink.LinkByName(name)
	var gone netlink.LinkNotFoundError
	if errors.As(err, &gone) {
		return nil
	}
	if err == nil {
		err = netlink.LinkDel(link)
	}
	return wrap(err, "remove tap %s", name)
}

// tapUsers are the QEMUs of this namespace by the names of the taps that they have open.
func tapUsers() (map[string]int, error) {
	here, err := os.Readlink("/proc/thread-self/ns/net")
	if err != nil {
		return nil, err
	}
	folders, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		return nil, err
	}
	users := map[string]int{}
	for _, folder := range folders {
		exe, err := os.Readlink(folder + "/exe")
		if err != nil || !strings.HasPrefix(filepath.Base(exe), "qemu") {
			continue
		}
		if ns, err := os.Readlink(folder + "/ns/net"); err != nil || ns != here {
			continue
		}
		var pid int
		if _, err := fmt.Sscanf(folder, "/proc/%d", &pid); err != nil {
			continue
		}
		infos, _ := filepath.Glob(folder + "/fdinfo/*")
		for _, info := range infos {
			if name := tapOf(info); name != "" {
				users[name] = pid
			}
		}
	}
	return users, nil
}

// tapOf is the device of an open descriptor, "" if it has none.
func tapOf(fdinfo string) string {
	f, err := os.Open(fdinfo)
	if err != nil {
		return ""
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		if name, ok := strings.CutPrefix(lines.Text(), "iff:"); ok {
			return strings.TrimSpace(name)
		}
	}
	return ""
}
