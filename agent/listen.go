package agent

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"syscall"

	"godwit/agent/peer"
	"godwit/agent/probe"
	"godwit/internal/lasting"
)

func (a *Agent) listenAddrs() []netip.AddrPort {
	var out []netip.AddrPort
	for _, u := range a.config.Uplinks {
		out = append(out, netip.AddrPortFrom(u.Address, a.config.Port))
	}
	return out
}

// answerProbes has other hosts' probes of paths answered until ctx ends.
func (a *Agent) answerProbes(ctx context.Context) (err error) {
	a.probes, err = probe.Reflect(ctx, a.listenAddrs())
	return unheard(err, samePort, ownAddress)
}

// answerPeers has other agents' calls and streams answered until ctx ends.
func (a *Agent) answerPeers(ctx context.Context) error {
	return unheard(peer.Serve(ctx, a.id, a.listenAddrs(), a.peerAPI(), a.stream, a.log), samePort, ownAddress)
}

// The keys of the configuration that say where other hosts are answered.
const (
	samePort   = "port, the same on all hosts"
	ownAddress = "uplinks[].address"
)

// unheard is err, for which nobody can listen where the configuration says, with what to do about it: port
// and address are the keys that say where.
func unheard(err error, port, address string) error {
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return fmt.Errorf("%w; end what has that port (`ss -lntup` names it), or name another by %s", err, port)
	case errors.Is(err, syscall.EADDRNOTAVAIL):
		return fmt.Errorf("%w; no device of this host has that address: give it to one, or mend %s", err, address)
	}
	return err
}

// lasting is ln, which goes on where connections cannot be taken for a while; what is so meanwhile is said.
func (a *Agent) lasting(ln net.Listener, what string) net.Listener {
	return lasting.Listener(ln, func(err error) { a.log.Error(what+"; it is tried on", "error", err, "cure", lasting.Cure) })
}
