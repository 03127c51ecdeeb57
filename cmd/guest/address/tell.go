package address

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"godwit/netstate/mptcp"

	"github.com/vishvananda/netlink"
)

// Peers that are told of an address come a round trip later. Where they are told just before the guest leaves, that
// passes while it is on its way: what they say first waits for it where it arrives, and is not what it does there
// first.

// errCrowd is why peers are not told before a guest leaves: so many would come while it stands still that what holds
// their packets has no room for them.
var errCrowd = errors.New("there are too many peers")

// Tell tells peers of the addresses that the NIC was made ready for (Ready), and has it answer who asks for that of
// IPv4. Configure with the same parameters then finds it done; what makes the NIC ready for something else, or for
// nothing, takes it back.
func (b *Book) Tell(mac string) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	link, err := linkByMAC(mac)
	if err != nil {
		return err
	}
	mac = link.Attrs().HardwareAddr.String()
	m, ok := b.ready[mac]
	if err := standsAlone(link); err != nil {
		return fmt.Errorf("tell of what %s is ready for: %w", link.Attrs().Name, err)
	}
	switch {
	case len(m.words) > 0 && !slices.ContainsFunc(m.words, func(w word) bool { return !w.said }):
		return nil
	case !ok || !m.whole || m.id == 0:
		err = errors.New("it was not made ready")
	case m.crowd || sockets() >= manyAre: // a copy may take long, and more come meanwhile
		err = errCrowd
	default:
		if _, err = m.answers.WriteString(answersForOwn); err == nil {
			b.receivers.Raise(firstFor)
			err = say(m.words)
		}
	}
	if err != nil {
		return fmt.Errorf("tell of what %s is ready for: %w", link.Attrs().Name, err)
	}
	return nil
}

// untell takes back what Tell told. Peers have heard of the id, so no other address has it (freePair).
func (b *Book) untell(m made) error {
	if !m.told() {
		return nil
	}
	if b.spent == nil || len(b.spent) >= mostSpent {
		b.spent = make(map[uint8]bool)
	}
	b.spent[m.id] = true
	existing, err := mptcp.Endpoints()
	if err != nil {
		return fmt.Errorf("take back what peers were told: %w", err)
	}
	for _, w := range m.words {
		e := w.endpoint.Endpoint()
		if !w.said || !slices.ContainsFunc(existing, func(o mptcp.Endpoint) bool { return o.ID == e.ID && o.Addr == e.Addr }) { // it is somebody else's
			continue
		}
		if err := mptcp.DelEndpoint(e.ID, e.Addr); err != nil {
			return fmt.Errorf("take back that peers were told of %s: %w", e.Addr, err)
		}
	}
	return nil
}

// dropTold takes back what an earlier run of this program told peers of a spare NIC's addrs before the guest was to
// leave; nothing else has the NIC say what a NAT shows of them, so that goes, too, where none of its addresses is kept.
func dropTold(link netlink.Link, addrs []netip.Addr, none bool, have []netlink.Addr) error {
	if len(addrs) == 0 {
		return nil
	}
	existing, err := listEndpoints()
	if errors.Is(err, mptcp.ErrUnsupported) {
		return nil
	}
	for _, e := range existing {
		shown := none && e.Dev == link.Attrs().Name && e.Flags&mptcp.FlagSignal != 0 && !serves(e, have)
		if shown || slices.Contains(addrs, e.Addr) {
			err = errors.Join(err, mptcp.DelEndpoint(e.ID, e.Addr))
		}
	}
	return err
}

// mostSpent is after how many the first are long forgotten: there are 120 pairs.
const mostSpent = 64
