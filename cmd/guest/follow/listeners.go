package follow

import (
	"errors"
	"net/netip"
	"slices"

	"godwit/netstate/mptcp"
	"godwit/vm/guest"
)

// Listeners carries out guest.Client.Listeners. Where the kernel itself listens, for joins to an endpoint that has a
// port, no program does.
func Listeners(addrs []netip.Addr) (guest.Listeners, error) {
	tcp, udp, err := mptcp.Listening()
	if err != nil {
		return guest.Listeners{}, err
	}
	endpoints, err := mptcp.Endpoints()
	if err != nil && !errors.Is(err, mptcp.ErrUnsupported) {
		return guest.Listeners{}, err
	}
	var all []guest.Listener
	for _, at := range tcp {
		if !slices.ContainsFunc(endpoints, func(e mptcp.Endpoint) bool { return e.Port != 0 && netip.AddrPortFrom(e.Addr, e.Port) == at }) {
			all = append(all, guest.Listener{Kind: guest.KindTCP, Local: at})
		}
	}
	for _, at := range udp {
		all = append(all, guest.Listener{Kind: guest.KindUDP, Local: at})
	}
	return guest.ListenersAlone(all, addrs), nil
}
