package netstate

import (
	"fmt"
	"net/netip"
	"strings"

	"godwit/netstate/dump"

	"golang.org/x/sys/unix"
)

// check says what this namespace lacks for s, before anything is changed.
func (k *kernel) check(s State) error {
	for _, a := range s.Away {
		if _, err := k.link(a.Tunnel); err != nil {
			return err
		}
		if a.Home != "" {
			if _, err := k.link(a.Home); err != nil {
				return err
			}
		} else if a.Addr.Is4() && !a.Gateway.IsValid() {
			if err := k.unfiltered(s.Bridge); err != nil {
				return err
			}
		}
	}
	for _, v := range s.Visiting {
		if v.AtHome() {
			continue
		}
		if _, err := k.link(v.Tunnel); err != nil {
			return err
		}
		if v.Publish != 0 {
			if err := forwards(v.Addr); err != nil {
				return err
			}
		}
	}
	return nil
}

// unfiltered refuses a bridge on which clients' packets would be dropped: without
// an address of its own the kernel takes rp_filter 2 for 1 there.
func (k *kernel) unfiltered(bridge string) error {
	link, err := k.link(bridge)
	if err != nil {
		return err
	}
	addrs, err := dump.Addrs(link, unix.AF_INET)
	if err != nil {
		return fmt.Errorf("list addresses of %s: %w", bridge, err)
	}
	all, err := readSysctl("ipv4/conf/all/rp_filter")
	if err != nil {
		return err
	}
	own, err := readSysctl("ipv4/conf/" + bridge + "/rp_filter")
	if err != nil {
		return err
	}
	if len(addrs) == 0 && max(all, own) != "0" {
		return fmt.Errorf("bridge %s has no address and rp_filter %s: name the gateway, or set net.ipv4.conf.all.rp_filter and the bridge's to 0", bridge, max(all, own))
	}
	return nil
}

// forwards refuses a host that would drop what a route leads to it.
func forwards(addr netip.Addr) error {
	key := "ipv6/conf/all/forwarding"
	if addr.Is4() {
		key = "ipv4/conf/all/forwarding"
	}
	on, err := readSysctl(key)
	if err == nil && on == "0" {
		err = fmt.Errorf("address %s is to be published, and this host forwards nothing: set net.%s to 1", addr, strings.ReplaceAll(key, "/", "."))
	}
	return err
}
