package address

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"time"

	"godwit/netstate/dump"
	"godwit/vm/guest"

	"github.com/vishvananda/netlink"
)

// made is what a NIC was made ready for.
type made struct {
	guest.Configure
	whole bool         // all of it is in place
	link  netlink.Link // the NIC
	early []netip.Addr // it has them already, or takes in what comes to them (IPv6), and answers nobody who asks for them
	lease *time.Timer  // ends it
	term  uint64       // of the lease: each has its own

	// What tells peers, where that is known beforehand; see atOnce.
	id      uint8 // of the pair; 0: it is not
	words   []word
	answers *os.File // by which the NIC is made to answer
	crowd   bool     // there are many peers
}

// gateway is by what packets from addr are led.
func (m made) gateway(addr netip.Addr) netip.Addr {
	if addr.Is4() {
		return m.GatewayV4
	}
	return m.GatewayV6
}

// close ends what is open for m.
func (m made) close() {
	m.lease.Stop()
	m.closeWords()
}

// closeWords ends what is open to tell peers.
func (m made) closeWords() {
	if m.id == 0 {
		return
	}
	for _, w := range m.words {
		w.endpoint.Close()
	}
	m.answers.Close()
}

// readyFor is how long a NIC stays ready: a guest that cannot be asked any more keeps nothing
// of an address that may be another's by then. Configure does what has ended.
const readyFor = 10 * time.Minute

// Ready does beforehand what Configure would do and nobody notices: the NIC is brought up, packets from the addresses
// that it will have are led out of it, it has the IPv4 ones, by themselves, without their subnet, and takes in what
// comes to those of IPv6 (takeIn), and answers nobody who asks for them. Configure with the same addresses, table and
// gateways then does the rest, what peers wait for first (atOnce). A NIC that has addresses of somebody else goes on
// answering for them, and is given no other before Configure. Without addresses, what was made ready for that NIC is
// undone: it is down again; so it is after readyFor. Asked again for the same, where all of it is still there, it keeps
// it for that long again. On an error some of it may be in place; Configure completes it.
func (b *Book) Ready(p guest.Configure) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	link, err := linkByMAC(p.MAC)
	if err != nil {
		return err
	}
	mac, name := link.Attrs().HardwareAddr.String(), link.Attrs().Name
	if _, ok := b.nics[mac]; ok {
		return fmt.Errorf("make %s ready: it is configured", name)
	}
	before, was := b.ready[mac]
	if before.whole && identical(before.Configure, p) && stands(before, link) {
		b.extend(&before)
		b.ready[mac] = before
		return nil
	}
	used, err := b.clear(link)
	if err != nil {
		return err
	}
	if len(p.Addrs) == 0 && !used {
		return b.rest(link)
	}
	if len(p.Addrs) == 0 {
		return nil
	}
	if p.Table < 1 {
		return fmt.Errorf("make %s ready: needs a table above 0", name)
	}
	if err := standsAlone(link); err != nil {
		if was { // it is as its owner has it
			err = errors.Join(err, b.rest(link))
		}
		return fmt.Errorf("make %s ready: %w", name, err)
	}
	if b.ready == nil {
		b.ready = make(map[string]made)
	}
	m := made{Configure: p, link: link}
	b.extend(&m)
	b.ready[mac] = m // from here on there is something to undo
	if err := b.complete(&m); err != nil {
		return fmt.Errorf("make %s ready: %w", name, err)
	}
	m.whole = true
	b.ready[mac] = m
	return nil
}

// complete makes all that m says.
func (b *Book) complete(m *made) error {
	if err := raise(m.link, m.Configure); err != nil {
		return err
	}
	others, err := othersOn(m.link)
	if err == nil && !others {
		err = answer(m.link, answersNobody) // until it is configured
	}
	if err != nil {
		return err
	}
	for _, prefix := range m.Addrs {
		if err := lead(m.link, prefix.Addr(), m.Table, nic{gateways: []netip.Addr{m.GatewayV4, m.GatewayV6}}); err != nil {
			return fmt.Errorf("for %s: %w", prefix, err)
		}
	}
	if others {
		return nil
	}
	if err := b.placeEarly(m); err != nil {
		return err
	}
	b.prepare(m)
	return nil
}

// clear undoes what a NIC was made ready for, by this run of the program or, where that knows nothing of it, by
// an earlier one; used says that such a NIC has addresses of others.
func (b *Book) clear(link netlink.Link) (used bool, err error) {
	mac := link.Attrs().HardwareAddr.String()
	if b.strange(mac) {
		return dropStrays(link, nil)
	}
	return false, b.unready(mac)
}

// rest has a NIC as it is when nothing is made ready for it.
func (b *Book) rest(link netlink.Link) error {
	if _, ok := b.lingers[link.Attrs().HardwareAddr.String()]; ok {
		return nil // it was up before
	}
	others, err := othersOn(link)
	if err != nil {
		return fmt.Errorf("set %s down: %w", link.Attrs().Name, err)
	}
	if !others {
		if err := b.takeDown(link); err != nil {
			return err
		}
	}
	if err := answer(link, answersForOwn); err != nil { // who uses it next may not know that it answers nobody
		return fmt.Errorf("have %s answer again: %w", link.Attrs().Name, err)
	}
	return nil
}

// extend lets a NIC stay ready for readyFor from now on.
func (b *Book) extend(m *made) {
	if m.lease != nil {
		m.lease.Stop()
	}
	b.terms++
	mac, term := m.link.Attrs().HardwareAddr.String(), b.terms
	m.term, m.lease = term, time.AfterFunc(readyFor, func() { b.expire(mac, term) })
}

// expire undoes what a NIC was made ready for, unless it was configured, made ready for something else, or is to
// stay ready for longer, since.
func (b *Book) expire(mac string, term uint64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	m, ok := b.ready[mac]
	if !ok || m.term != term {
		return
	}
	if b.unready(mac) != nil {
		return // nobody is there to hear of it
	}
	if link, err := netlink.LinkByIndex(m.link.Attrs().Index); err == nil { // it may be a part of something by now
		_ = b.rest(link)
	}
}

// identical says whether both make the same of a NIC, and tell peers the same.
func identical(a, b guest.Configure) bool {
	return same(a, b) && a.Endpoint == b.Endpoint && slices.Equal(a.Announce, b.Announce)
}

// stands says whether all that was made ready is as it was: other programs of the guest may think that the NIC is
// theirs.
func stands(m made, link netlink.Link) bool {
	have, err := dump.Addrs(link, netlink.FAMILY_V4)
	taken, terr := takenIn(link)
	now, was := link.Attrs(), m.link.Attrs()
	if err != nil || terr != nil || now.Flags&net.FlagUp == 0 || now.Index != was.Index || now.MasterIndex != was.MasterIndex {
		return false
	}
	for _, addr := range m.early {
		if !slices.Contains(taken, addr) && !slices.ContainsFunc(have, func(a netlink.Addr) bool { return a.IP.Equal(addr.AsSlice()) }) {
			return false
		}
	}
	for _, prefix := range m.Addrs {
		rules, err := rulesFrom(prefix.Addr())
		if err != nil || !slices.ContainsFunc(rules, func(r netlink.Rule) bool { return r.Table == m.Table }) {
			return false
		}
		if !m.gateway(prefix.Addr()).IsValid() {
			continue
		}
		routes, err := routesOf(familyOf(prefix.Addr()), m.Table)
		if err != nil || !slices.ContainsFunc(routes, func(r netlink.Route) bool { return isDefault(r) && r.LinkIndex == link.Attrs().Index }) {
			return false
		}
	}
	return true
}

// same says whether both make the same of a NIC.
func same(a, b guest.Configure) bool {
	return a.Table == b.Table && a.MTU == b.MTU && a.GatewayV4 == b.GatewayV4 && a.GatewayV6 == b.GatewayV6 && slices.Equal(a.Addrs, b.Addrs)
}

// unready forgets what the NIC was made ready for.
func (b *Book) unready(mac string) error {
	p, ok := b.ready[mac]
	if !ok {
		return nil
	}
	p.close()
	if err := b.untell(p); err != nil {
		return err
	}
	for _, addr := range p.early {
		if err := dropAddr(p.link, addr); err != nil {
			return err
		}
	}
	for _, prefix := range p.Addrs {
		if err := unlead(prefix.Addr()); err != nil {
			return err
		}
	}
	delete(b.ready, mac)
	return nil
}

// takeReady says whether all that p needs beforehand is in place, and forgets it either way.
func (b *Book) takeReady(mac string, p guest.Configure) (made, error) {
	m, ok := b.ready[mac]
	if ok && m.whole && same(m.Configure, p) {
		delete(b.ready, mac)
		return m, nil
	}
	return made{}, b.unready(mac)
}
