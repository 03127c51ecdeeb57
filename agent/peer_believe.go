package agent

import (
	"fmt"
	"net"
	"net/netip"

	"godwit/agent/talk"
)

// believe says what of a preparation cannot be true.
func (a *Agent) believe(p talk.Preparation) error {
	own, err := net.InterfaceAddrs()
	if err != nil {
		return fmt.Errorf("prepare guest %s: %w", p.Plan.Guest, err)
	}
	return p.Believe(a.config, a.takenAddresses(), func(addr netip.Addr) string { return a.book.Whose(addr, own) })
}
