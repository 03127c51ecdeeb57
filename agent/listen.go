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
	return unheard(err, samePort)
}

// answerPeers has other agents' calls and streams answered until ctx ends.
func (a *Agent) answerPeers(ctx context.Context) error {
	return unheard(peer.Serve(ctx, a.id, a.listenAddrs(), a.peerAPI(), a.stream, a.log), samePort)
}

// samePort is the key of the configuration that says where other hosts are answered.
const samePort = "port, the same on all hosts"

// unheard is err, for which nobody can listen where the configuration says, with what to do about it: port
// is the key that says where.
func unheard(err error, port string) error {
	if errors.Is(err, syscall.EADDRINUSE) {
		return fmt.Errorf("%w; end what has that port (`ss -lntup` names it), or name another by %s", err, port)
	}
	return err
}

// lasting is ln, which goes on where connections cannot be taken for a while; what is so meanwhile is said.
func (a *Agent) lasting(ln net.Listener, what string) net.Listener {
	return lasting.Listener(ln, func(err error) { a.log.Error(what+"; it is tried on", "error", err, "cure", lasting.Cure) })
}
