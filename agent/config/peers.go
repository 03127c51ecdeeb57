package config

import (
	"fmt"
	"net/netip"
	"strings"
	"unicode"
)

// IsHostName says whether a new host may be called that: its certificate has that name, and the calls to it (RFC 3986,
// 3.2.2), which take an IP address for another kind of name. Configurations take more (IsWord): a fleet may have hosts
// that call others, and are not called.
func IsHostName(name string) bool {
	const letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-"
	_, err := netip.ParseAddr(name)
	return err != nil && IsWord(name) && len(name) <= mostHostName && strings.Trim(name, letters) == ""
}

// HostNames are what a host may be called, in words.
const HostNames = "one word of letters, digits, '.', '_' and '-', up to 250, and no IP address"

// mostHostName bounds a host's name, bytes: its certificate's file is called by it.
const mostHostName = 250

// IsWord says whether a host or a site may be called that in a configuration: it becomes part of paths and of lines.
func IsWord(name string) bool {
	return name != "" && name != "." && name != ".." && !strings.ContainsFunc(name, func(r rune) bool {
		return r == '/' || unicode.IsSpace(r) || !unicode.IsPrint(r)
	})
}

// SubnetOf is the guests' subnet of addr's family there; zero: it is not known.
func (n Neighbour) SubnetOf(addr netip.Addr) netip.Prefix {
	if addr.Is4() {
		return n.V4
	}
	return n.V6
}

// checkNames refuses what other hosts and their people could not say.
func (c *Config) checkNames() error {
	for _, n := range []struct{ key, name string }{{"host", c.Host}, {"site", c.Site}} {
		if !IsWord(n.name) {
			return fmt.Errorf("%s %q: it must be one word, without /", n.key, n.name)
		}
	}
	return nil
}

// checkPeers says what cannot be meant of the other hosts.
func (c *Config) checkPeers() error {
	hosts := map[string]bool{c.Host: true}
	for i, p := range c.Peers {
		key := fmt.Sprintf("peers[%d]", i)
		switch {
		case p.Host == "" || p.Site == "":
			return fmt.Errorf("%s: host and site are needed", key)
		case !IsWord(p.Host) || !IsWord(p.Site):
			return fmt.Errorf("%s: host %q, site %q: each must be one word, without /", key, p.Host, p.Site)
		case hosts[p.Host]:
			return fmt.Errorf("%s: host %s is named twice", key, p.Host)
		case p.V4.IsValid() && !p.V4.Addr().Is4():
			return fmt.Errorf("%s.v4 %s: it is of the other family of addresses", key, p.V4)
		case p.V6.IsValid() && p.V6.Addr().Is4():
			return fmt.Errorf("%s.v6 %s: it is of the other family of addresses", key, p.V6)
		}
		hosts[p.Host] = true
		if err := checkUplinks(key+".uplinks", p.Uplinks); err != nil {
			return err
		}
	}
	return nil
}
