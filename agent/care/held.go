// Package care has what an agent remembers of each guest under its care, as it is kept in a file and told to others.
package care

import (
	"errors"
	"fmt"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"

	"godwit/agent/config"
	"godwit/agent/statefile"
	"godwit/migration"
	"godwit/vm/guest"
)

// Held is what is remembered of a guest.
type Held struct {
	Description config.Description  `json:"description"`
	Dir         string              `json:"dir"`
	Number      int                 `json:"number"` // small, names its taps on this host
	Taps        []string            `json:"taps"`   // names, in the order of NICs
	Active      int                 `json:"active"` // index of the active NIC
	Addresses   []migration.Address `json:"addresses"`
	ToDrop      []netip.Addr        `json:"to_drop,omitempty"`  // that it was to give up, and has not said that it did; see dropLeft
	Epoch       uint64              `json:"epoch"`              // of the right to run it here
	By          string              `json:"by,omitempty"`       // migration that brought it, or BegunHere; "": a file of before
	Endpoint    uint8               `json:"endpoint"`           // highest MPTCP endpoint id used so far
	Table       int                 `json:"table"`              // highest routing table number used in the guest
	Boot        string              `json:"boot,omitempty"`     // id of the boot in which the guest has what a handover gave it; see boots
	Unnamed     bool                `json:"unnamed,omitempty"`  // the name server is to be told of what its handover gave it, and has not taken it yet
	Starting    bool                `json:"starting,omitempty"` // its QEMU may run, and nobody was told that it does: see startGuest
	Unheard     *Unheard            `json:"unheard,omitempty"`  // how it came, until its source is known to have heard that it landed
}

// BegunHere is of a guest that no migration brought: it was started or adopted here.
const BegunHere = "here"

// Begun is of a guest that is started or adopted here.
func Begun(d config.Description, dir string) Held {
	return Held{Description: d, Dir: dir, Epoch: 1, By: BegunHere, Table: guest.FirstTable}
}

// StaysBy says whether it is by that migration's right that the guest is here. Epochs alone do not tell: they begin
// again at 1 where a guest is started or adopted.
func (h Held) StaysBy(id string, epoch uint64) bool {
	return h.Epoch == epoch && (h.By == id || h.By == "")
}

// Unheard is the migration that brought a guest, and the host that may not have heard that it
// landed.
type Unheard struct {
	Migration string `json:"migration"`
	From      string `json:"from"`
}

// Check says what is wrong with what was remembered of a guest. Its directory is removed
// with it, so it must be one that a guest may have.
func (h *Held) Check() error {
	if err := h.Description.Check(); err != nil {
		return err
	}
	name := h.Description.Name
	switch {
	case !statefile.DirectlyIn(h.Dir, "guests") || !strings.HasPrefix(filepath.Base(h.Dir), name+"-"):
		return fmt.Errorf("guest %s: directory %.200q is not one of its own", name, h.Dir)
	case h.Unheard != nil && !migration.ValidID(h.Unheard.Migration):
		return fmt.Errorf("guest %s: came by migration %.100q", name, h.Unheard.Migration)
	case h.By != "" && h.By != BegunHere && !migration.ValidID(h.By):
		return fmt.Errorf("guest %s: is here by migration %.100q", name, h.By)
	case h.Number < 0:
		return fmt.Errorf("guest %s: number %d", name, h.Number)
	case h.Active < 0 || h.Active >= len(h.Description.NICs):
		return fmt.Errorf("guest %s: active NIC %d of %d", name, h.Active, len(h.Description.NICs))
	case len(h.Taps) > 0 && len(h.Taps) != len(h.Description.NICs):
		return fmt.Errorf("guest %s: %d taps for %d NICs", name, len(h.Taps), len(h.Description.NICs))
	case slices.ContainsFunc(h.Taps, func(t string) bool { return !config.IsDevice(t) }):
		return fmt.Errorf("guest %s: taps %.100q are not devices", name, h.Taps)
	case len(h.Addresses) > migration.MostAddresses:
		return fmt.Errorf("guest %s: %d addresses", name, len(h.Addresses))
	}
	return errors.Join(migration.CheckAddresses(h.Addresses), CheckToDrop(h.ToDrop))
}

// Kept is the address that a guest has beside its current one of IPv4, until the lease of
// its tunnel ends; zero: none.
func (h Held) Kept() netip.Addr {
	current := false
	for _, addr := range h.Addresses {
		if !addr.Prefix.Addr().Is4() {
			continue
		}
		if current {
			return addr.Prefix.Addr()
		}
		current = true
	}
	return netip.Addr{}
}

// GiveUp has the guest be asked to give addresses up, until it did. They are not its own any more
// by then: what is among Addresses is left to it.
func (h *Held) GiveUp(addrs ...netip.Addr) {
	for _, addr := range addrs {
		if !slices.Contains(h.ToDrop, addr) && len(h.ToDrop) < migration.MostAddresses {
			h.ToDrop = append(h.ToDrop, addr)
		}
	}
}

// LeftOver is what of the list the guest can be asked for now: not what it was given again since. Of one
// that nobody can ask, the spare NIC is unplugged (outside.DropAddress): not while it is used.
func (h Held) LeftOver() []netip.Addr {
	if h.Description.Silent() && h.Kept().IsValid() {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(h.ToDrop), func(a netip.Addr) bool {
		return slices.ContainsFunc(h.Addresses, func(has migration.Address) bool { return has.Prefix.Addr() == a })
	})
}

// CheckToDrop says what of such a list cannot be meant.
func CheckToDrop(all []netip.Addr) error {
	if len(all) > migration.MostAddresses || slices.Contains(all, netip.Addr{}) {
		return fmt.Errorf("%d addresses to be given up, or one that is none", len(all))
	}
	return nil
}

// Handed are the addresses that the last handover gave the guest, and kept those that it has beside them until a lease
// ends. There are none where the guest has what its own configuration says.
func (h Held) Handed() (given, kept []migration.Address) {
	for _, addr := range h.Addresses {
		if addr.Handover != "" {
			given = append(given, addr)
		} else {
			kept = append(kept, addr)
		}
	}
	if len(given) == 0 {
		return nil, nil
	}
	return given, kept
}

// ComesIn is the boot in which a guest that moves on has what is remembered of it: not the one in which it is now, if
// it has booted anew since and was not given that again.
func (h Held) ComesIn(info guest.Info) string {
	if given, _ := h.Handed(); len(given) > 0 && h.Boot != "" {
		return h.Boot
	}
	return BootID(info)
}

// BootID is that of the boot in which the guest is; "": its program does not say.
func BootID(info guest.Info) string {
	if len(info.BootID) > LongestBoot {
		return ""
	}
	return info.BootID
}

// LongestBoot bounds the id of a boot, bytes: it is a UUID where the guest has Linux.
const LongestBoot = 64
