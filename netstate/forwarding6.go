package netstate

import (
	"path"
	"slices"
	"strings"
)

// forwarding6 is what makes a host a router of IPv6: written, it is that of all its devices, and of those to come.
const forwarding6 = "ipv6/conf/all/forwarding"

// toCome6 is what devices to come have. It is put back at once, and noted: where it is 1 later, somebody else has
// made the host a router meanwhile, whom nothing but this shows, as it was one by us already.
const toCome6 = "ipv6/conf/default/forwarding"

// forward6 has the host forward IPv6.
func forward6() error {
	was, err := readSysctl(toCome6)
	if err == nil {
		err = writeSysctl(forwarding6, "1")
	}
	if err == nil && was == "0" {
		err = writeSysctl(toCome6, was)
	}
	return err
}

// tellApart notes that devices to come are told apart from those that are there, once that is so: an agent that is killed
// in forward6 has it not be taken for somebody else's will.
func (b book) tellApart(mine []resource) error {
	old := b.remembered()
	_, noted := old[toCome6]
	if _, ours := old[forwarding6]; noted || !ours || !slices.Contains(mine, resource(sysctl{forwarding6, "1"})) {
		return nil
	}
	now, err := readSysctl(toCome6)
	if err != nil || now != "0" {
		return err
	}
	old[toCome6] = now
	p := newPage()
	p.write(chainRemember, b.chains[chainRemember], remember(old))
	if err := p.commit("notes"); err != nil {
		return err
	}
	b.chains[chainRemember] = remember(old)
	return nil
}

// othersForward6 says whether somebody else has made the host a router since we did, so that it is to stay one. old are the
// sysctls that were changed.
func othersForward6(old map[string]string) bool {
	if _, apart := old[toCome6]; !apart {
		return false
	}
	all, err := readSysctl(forwarding6)
	toCome, err2 := readSysctl(toCome6)
	return err == nil && err2 == nil && all == "1" && toCome == "1"
}

// ofForwarding6 says whether a sysctl was changed for the host to forward IPv6.
func ofForwarding6(name string) bool {
	return strings.HasPrefix(name, "ipv6/") && path.Base(name) == "forwarding" || isAcceptRA(name)
}
