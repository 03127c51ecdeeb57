package netstate

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"godwit/netstate/dump"

	"golang.org/x/sys/unix"
)

// check says what this namespace lacks for s, before anything is changed.
func (k *kernel) check(s State) error {
	if err := k.ofNoVRF(s.Bridge); err != nil {
		return err
	}
	for _, addr := range s.addresses() {
		if err := Speaks(addr); err != nil {
			return err
		}
	}
	for _, a := range s.Away {
		if err := k.checkAway(a, s.Bridge); err != nil {
			return err
		}
	}
	for _, v := range s.Visiting {
		if err := k.checkVisiting(v); err != nil {
			return err
		}
	}
	return nil
}

func (k *kernel) checkAway(a Away, bridge string) error {
	if _, err := k.link(a.Tunnel); err != nil {
		return err
	}
	if a.Home != "" {
		_, err := k.link(a.Home)
		return err
	}
	if a.Addr.Is4() && !a.Gateway.IsValid() {
		return k.unfiltered(bridge)
	}
	return nil
}

func (k *kernel) checkVisiting(v Visiting) error {
	if v.AtHome() {
		return nil
	}
	if v.Leaves != "" {
		if _, err := k.link(v.Leaves); err != nil {
			return err
		}
	}
	if _, err := k.link(v.Tunnel); err != nil {
		return err
	}
	if v.Publish != 0 {
		return forwards(v.Addr)
	}
	return nil
}

// Speaks refuses an address of a family that this host's kernel does not have.
func Speaks(addr netip.Addr) error {
	if slices.Contains(families(), family(addr)) {
		return nil
	}
	return fmt.Errorf("address %s: this host's kernel has no IPv6; start it without ipv6.disable, or load the module ipv6", addr)
}

// OfNoVRF refuses a bridge of a VRF: what comes by it has a routing table of its own, and nobody has seen how our rules
// stand to that (l3mdev).
func OfNoVRF(bridge string) error { return newKernel().ofNoVRF(bridge) }

func (k *kernel) ofNoVRF(bridge string) error {
	link, err := k.link(bridge)
	if err != nil || link.Attrs().MasterIndex == 0 {
		return err
	}
	master, err := k.at(link.Attrs().MasterIndex)
	if err != nil {
		return fmt.Errorf("find the master of bridge %s: %w", bridge, err)
	}
	if master.Type() != "vrf" {
		return nil
	}
	return fmt.Errorf("bridge %s: it is in VRF %s, in which guests that move are not led; take it out (ip link set %s nomaster)",
		bridge, master.Attrs().Name, bridge)
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
