package agent

import (
	"context"
	"fmt"
	"net/netip"
	"path/filepath"
	"strings"

	"godwit/agent/statefile"
	"godwit/migration"
	"godwit/netstate/tunnel"
)

// endTries is how often another port is tried, which makes other inner addresses.
const endTries = 50

// answeringEnd is tunnelEnd of who knows the other end: on a port by which the tunnel's inner addresses are nobody's here,
// nor among those that are used there, as far as that is known.
func (a *Agent) answeringEnd(id, kind string, local netip.Addr, remote netip.AddrPort, private tunnel.Key, there []netip.Prefix) (end tunnel.Config, err error) {
	for range endTries {
		if end, err = a.tunnelEnd(id, kind, local, private); err != nil {
			return end, err
		}
		if end.Remote = remote; kind == tunnel.VXLAN {
			end.Local = netip.AddrPortFrom(local, remote.Port())
		}
		if err = a.innerFree(end); err == nil && end.Meets(there) {
			own, peer := tunnel.InnerAddrs(end.Local, end.Remote)
			err = &migration.Problem{Code: migration.CodePath, Text: fmt.Sprintf(
				"tunnel from %s: its inner addresses %s and %s are those of a device there; try again: another port makes others", end.Remote, own, peer)}
		}
		if err == nil {
			return end, nil
		}
	}
	return end, err
}

// tunnelName is the device of the tunnel of a detour, at most 15 characters: its id, where that is a migration's, and else a hash
// of it, which another may have.
func tunnelName(id string) string {
	if !migration.ValidID(id) {
		id = hashID(id)
	}
	return "gwt-" + strings.TrimPrefix(id, "m-")
}

// ownName refuses a detour whose tunnel would have the name of another's: what has a name is taken down before it is made anew.
func (a *Agent) ownName(id string) error {
	name := tunnelName(id)
	other := a.detours.TunnelOf(name, id)
	if other == "" {
		return nil
	}
	return &migration.Problem{Code: migration.CodePath, Text: fmt.Sprintf(
		"tunnel %s: detour %s has one of that name on host %s; migrate again, which makes another", name, other, a.config.Host)}
}

// innerFree refuses a tunnel whose inner addresses another device of this host has.
func (a *Agent) innerFree(end tunnel.Config) error {
	by, err := tunnel.InnerTaken(end)
	if err != nil || by == "" {
		return err
	}
	own, peer := tunnel.InnerAddrs(end.Local, end.Remote)
	return &migration.Problem{Code: migration.CodePath, Text: fmt.Sprintf(
		"tunnel to %s: its inner addresses %s and %s are those of device %s on host %s; try again: another port makes others", end.Remote, own, peer, by, a.config.Host)}
}

// endAstray ends the tunnels that no detour has, as an agent was killed before it had written the detour down, or between that
// it has ended and the tunnel's end. It is for the start: nobody is making any.
func (a *Agent) endAstray(ctx context.Context) {
	for _, socket := range statefile.Matching(a.tunnelDir(), "gwt-*.sock") {
		name := strings.TrimSuffix(filepath.Base(socket), ".sock")
		if a.detours.TunnelOf(name, "") != "" {
			continue
		}
		err := a.dropTunnel(ctx, name)
		a.log.Warn("tunnel of no detour ended", "tunnel", name, "error", err)
	}
}

// dropStrays removes what leads to or from no guest, and an agent of another release has left in the kernel. It is for the start, too.
func (a *Agent) dropStrays() {
	removed, err := a.detours.DropStrays()
	if len(removed) > 0 || err != nil {
		a.log.Warn("network state of no guest removed", "entries", removed, "error", err)
	}
}
