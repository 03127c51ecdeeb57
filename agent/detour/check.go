package detour

import (
	"errors"
	"fmt"
	"net/netip"
	"path/filepath"
	"regexp"
	"slices"

	"godwit/agent/config"
	"godwit/agent/statefile"
	"godwit/netstate"
)

// detourForm is that of a detour's id: the migration that made it, and, where it leads from
// a third host, that host, and before it the home that hands it over there: two names of hosts, as `godwit init` takes them.
var detourForm = regexp.MustCompile(`^m-[0-9a-f]{8}(-[^/\s]{1,511})?$`)

// mostDetours bounds those of a host; mostEntries the addresses of one, and mostTaps its taps.
const mostDetours, mostEntries, mostTaps = 4096, 512, 64

// writtenDetours are detours.json.
type writtenDetours map[string]*Detour

// Check says what is wrong with the file, in one line.
func (all writtenDetours) Check() error {
	if len(all) > mostDetours {
		return fmt.Errorf("%d detours", len(all))
	}
	for id, d := range all {
		if d == nil || d.ID != id || !detourForm.MatchString(id) {
			return fmt.Errorf("detour %.100q: its id is not one", id)
		}
		if err := d.Check(); err != nil {
			return fmt.Errorf("detour %s: %w", id, err)
		}
	}
	return nil
}

// Check says what of a detour that was read cannot be meant: names that are no devices, addresses that are
// none, more than a guest may have.
func (d *Detour) Check() error {
	taps := slices.Clone(d.Taps)
	entries := len(d.Away) + len(d.Visiting) + len(d.Coming) + len(d.Leaving) + len(d.Standing)
	addrs := d.Addresses()
	for _, a := range slices.Concat(d.Away, d.Standing) {
		taps = append(taps, a.Tap)
	}
	for _, v := range slices.Concat(d.Visiting, d.Coming, d.Leaving) {
		taps, addrs = append(append(taps, v.Tap, v.Tunnel), v.Taps...), append(addrs, v.Addr)
	}
	if d.OffLink != nil {
		taps, addrs = append(taps, d.OffLink.Tap), append(addrs, d.OffLink.Routers...)
		if err := CheckHeard(d.OffLink.Heard); err != nil {
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
	case d.Tunnel.Name != "" && (!config.IsDevice(d.Tunnel.Name) || !statefile.DirectlyIn(filepath.Join(d.Tunnel.Dir, d.Tunnel.Name), "tunnels")):
		return fmt.Errorf("tunnel %.100q in %.200q is not one of ours", d.Tunnel.Name, d.Tunnel.Dir)
	case entries > mostEntries || len(d.Taps) > mostTaps:
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

// onLink names the subnet of addresses whose home is here, where the file does not: an older release, which may have
// written it since, knows of none.
func (d *Detour) onLink(n config.Network) {
	lists := [][]netstate.Away{d.Away, d.Standing}
	for _, sent := range d.Sent {
		lists = append(lists, sent)
	}
	for _, list := range lists {
		for i := range list {
			if a := &list[i]; a.Gateway.IsValid() && !a.Subnet.IsValid() {
				a.Subnet = n.OnLink(netip.PrefixFrom(a.Addr, 0))
			}
		}
	}
}
