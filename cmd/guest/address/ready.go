package address

import (
	"fmt"
	"net/netip"
	"slices"

	"godwit/vm/guest"

	"github.com/vishvananda/netlink"
)

// made is what a NIC was made ready for.
type made struct {
	guest.Configure
	whole bool // all of it is in place
}

// Ready does beforehand what Configure would do and nobody notices: the NIC is brought up,
// and packets from the addresses that it will have are led out of it. Configure with the
// same addresses, table and gateways then adds the addresses alone. Without addresses, what
// was made ready for that NIC is undone: it is down again. On an error some of it may be in
// place; Configure completes it.
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
	if err := b.unready(mac); err != nil {
		return err
	}
	if len(p.Addrs) == 0 {
		if _, ok := b.lingers[mac]; ok {
			return nil // it was up before
		}
		if err := netlink.LinkSetDown(link); err != nil {
			return fmt.Errorf("set %s down: %w", name, err)
		}
		return nil
	}
	if p.Table < 1 {
		return fmt.Errorf("make %s ready: needs a table above 0", name)
	}
	if b.ready == nil {
		b.ready = make(map[string]made)
	}
	b.ready[mac] = made{Configure: p} // from here on there is something to undo
	if err := raise(link, p); err != nil {
		return fmt.Errorf("make %s ready: %w", name, err)
	}
	if _, ok := b.lingers[mac]; ok {
		if err := answer(link, answersNobody); err != nil { // until it is configured
			return fmt.Errorf("make %s ready: %w", name, err)
		}
	}
	for _, prefix := range p.Addrs {
		if err := lead(link, prefix.Addr(), p.Table, nic{gateways: []netip.Addr{p.GatewayV4, p.GatewayV6}}); err != nil {
			return fmt.Errorf("make %s ready for %s: %w", name, prefix, err)
		}
	}
	b.ready[mac] = made{p, true}
	return nil
}

// unready forgets what the NIC was made ready for.
func (b *Book) unready(mac string) error {
	p, ok := b.ready[mac]
	if !ok {
		return nil
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
func (b *Book) takeReady(mac string, p guest.Configure) (bool, error) {
	r, ok := b.ready[mac]
	if ok && r.whole && r.Table == p.Table && r.MTU == p.MTU && r.GatewayV4 == p.GatewayV4 && r.GatewayV6 == p.GatewayV6 && slices.Equal(r.Addrs, p.Addrs) {
		delete(b.ready, mac)
		return true, nil
	}
	return false, b.unready(mac)
}
