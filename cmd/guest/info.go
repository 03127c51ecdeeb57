package main

import (
	"bytes"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"

	"godwit/netstate/dump"
	"godwit/netstate/mptcp"
	"godwit/vm/guest"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

func info(methods []string) (guest.Info, error) {
	i := guest.Info{Protocol: guest.Protocol, Capabilities: methods, UptimeMS: monotonic() / 1e6}
	var name unix.Utsname
	if err := unix.Uname(&name); err != nil {
		return i, err
	}
	i.Kernel = string(name.Release[:bytes.IndexByte(name.Release[:], 0)])
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return i, err
	}
	i.BootID = strings.TrimSpace(string(boot))
	enabled, err := os.ReadFile("/proc/sys/net/mptcp/enabled")
	i.MPTCP = err == nil && strings.TrimSpace(string(enabled)) == "1"
	if limits, err := mptcp.ReadLimits(); err == nil {
		i.Subflows, i.AddrAccepted = limits.Subflows, limits.AddAddrAccepted
	}
	if m, err := mptcp.ReadMemory(); err == nil && m.Limit > 0 {
		i.Unread = &guest.Unread{Used: m.Used, Limit: m.Limit, Grown: m.Grown, Connections: m.Connections}
	}
	i.NICs, err = nics()
	return i, err
}

func nics() ([]guest.NIC, error) {
	links, err := dump.Links()
	if err != nil {
		return nil, fmt.Errorf("list NICs: %w", err)
	}
	have, err := dump.Addrs(nil, netlink.FAMILY_ALL) // all at once: a node of a cluster has hundreds of links, and thousands of addresses
	if err != nil {
		return nil, fmt.Errorf("list addresses: %w", err)
	}
	addrs, temporary := make(map[int][]netip.Prefix), make(map[int][]netip.Addr) // by index
	for _, a := range have {
		if ip, ok := netip.AddrFromSlice(a.IP); ok && !ip.IsLinkLocalUnicast() {
			bits, _ := a.Mask.Size()
			addrs[a.LinkIndex] = append(addrs[a.LinkIndex], netip.PrefixFrom(ip.Unmap(), bits))
			if ip.Unmap().Is6() && a.Flags&unix.IFA_F_TEMPORARY != 0 { // of IPv4 that flag says another thing
				temporary[a.LinkIndex] = append(temporary[a.LinkIndex], ip)
			}
		}
	}
	above := make(map[int]bool) // by index; 0 is nobody's
	for _, link := range links {
		above[link.Attrs().Index] = slices.Contains(guest.KindsAbove, link.Type())
	}
	var all []guest.NIC
	for _, link := range links {
		a := link.Attrs()
		if len(a.HardwareAddr) != 6 || a.Flags&unix.IFF_LOOPBACK != 0 {
			continue
		}
		all = append(all, guest.NIC{Name: a.Name, MAC: a.HardwareAddr.String(), Up: a.Flags&unix.IFF_UP != 0, NoIPv6: noIPv6(a.Name),
			Above: above[a.Index], Part: above[a.MasterIndex], Addrs: addrs[a.Index], Temporary: temporary[a.Index]})
	}
	return all, nil
}

func noIPv6(device string) bool {
	off, err := os.ReadFile("/proc/sys/net/ipv6/conf/" + device + "/disable_ipv6")
	return err != nil || strings.TrimSpace(string(off)) != "0"
}
