package config

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"slices"

	"godwit/migration"
)

// Missing says what the file names and this host has not, or not yet, and nobody would miss before it is needed: hooks, of
// which an agent calls those that are there, and the fence, which is called on a bad day.
func (c *Config) Missing() (all []string) {
	if c.hooksNamed {
		if info, err := os.Stat(c.Hooks.Dir); err != nil || !info.IsDir() {
			all = append(all, fmt.Sprintf("hooks.dir %s: no such directory; no hook in it is called", c.Hooks.Dir))
		}
	}
	all = append(all, c.noEvents()...)
	if c.Fence == "" {
		return all
	}
	switch info, err := os.Stat(c.Fence); {
	case err != nil || info.IsDir():
		all = append(all, fmt.Sprintf("fence %s: no such file; no host is proved off by it", c.Fence))
	case info.Mode().Perm()&0o111 == 0:
		all = append(all, fmt.Sprintf("fence %s: not executable; no host is proved off by it", c.Fence))
	}
	return all
}

// eventFolder is what folders of an event's hooks are called.
var eventFolder = regexp.MustCompile(`^([A-Z_]+)\.d$`)

// noEvents are folders of hooks that are called as no event is, as by a slip of the pen.
func (c *Config) noEvents() (all []string) {
	entries, _ := os.ReadDir(c.Hooks.Dir) //nolint:errcheck // none, where that cannot be read
	for _, e := range entries {
		event := eventFolder.FindStringSubmatch(e.Name())
		if event == nil || !e.IsDir() {
			continue
		}
		if _, known := migration.MomentOf(migration.EventName(event[1])); !known {
			all = append(all, fmt.Sprintf("hooks in %s: no event has that name, and none of them is called; docs/hooks.md lists the events", filepath.Join(c.Hooks.Dir, e.Name())))
		}
	}
	return all
}

// Check says what this host has not, or not yet, of the uplink: its device, or its address.
func (u Uplink) Check() error {
	addrs, err := net.InterfaceAddrs()
	if u.Device != "" {
		device, derr := net.InterfaceByName(u.Device)
		if derr != nil {
			return fmt.Errorf("device %s: no such device", u.Device)
		}
		addrs, err = device.Addrs()
	}
	if err != nil {
		return err
	}
	has := slices.ContainsFunc(addrs, func(a net.Addr) bool {
		p, err := netip.ParsePrefix(a.String())
		return err == nil && p.Addr().Unmap() == u.Address.WithZone("").Unmap()
	})
	switch {
	case !has && u.Device != "":
		return fmt.Errorf("device %s has no address %s", u.Device, u.Address)
	case !has:
		return fmt.Errorf("no device has the address %s", u.Address)
	}
	return nil
}

// slowest is what no uplink that moves guests has less of, bit/s.
const slowest = 64_000

// Slow says which uplinks, here or of others, have a rate that is hardly meant, as where its unit was left out.
func (c *Config) Slow() (all []string) {
	look := func(where string, uplinks []Uplink) {
		for i, u := range uplinks {
			if 0 < u.Rate && u.Rate < slowest {
				all = append(all, fmt.Sprintf("%suplinks[%d] %s: rate of %d bit/s; a number without a unit is bit/s, write rate: %[4]dmbit for %[4]d Mbit/s", where, i, u.Name, u.Rate))
			}
		}
	}
	look("", c.Uplinks)
	for i, p := range c.Peers {
		look(fmt.Sprintf("peers[%d] %s: ", i, p.Host), p.Uplinks)
	}
	return all
}
