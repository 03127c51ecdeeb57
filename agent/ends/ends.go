// Package ends makes this host's ends of tunnels to other hosts: of those that lead guests' packets (ends.go), and of
// those in which a guest's memory goes where QEMU sends it by itself (memory.go).
//
// It owns their names, ports, inner addresses and leases, and the directory of their processes, and keeps nothing in
// memory: what is there is found by its name. It keeps these: a tunnel's inner addresses are nobody's else at either
// host, as far as that is known, and a tunnel ends by itself when no agent lives that keeps its lease ahead.
package ends

import (
	"context"
	"encoding/hex"
	"fmt"
	"hash/fnv"
	"net"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"godwit/agent/config"
	"godwit/agent/peer"
	"godwit/internal/clock"
	"godwit/migration"
	"godwit/netstate/tunnel"
)

// Dir is where the processes of a host's tunnels have their sockets and logs.
func Dir(c *config.Config) string { return filepath.Join(c.Run, "tunnels") }

// Lease is that of a tunnel which is made now, or kept.
func Lease() time.Time { return clock.Now().Add(2 * config.DefaultLease) }

// Short says whether a tunnel is to have its own lease anew. Of one that ends later than any was told to the clock was
// set back: by what is left of it for the tunnel itself it may end at any time.
func Short(until time.Time) bool {
	left := clock.Until(until)
	return left <= config.DefaultLease || left > 2*config.DefaultLease
}

// New is one end of the tunnel of a detour at local, on a free port.
func New(c *config.Config, id, kind string, local netip.Addr, private tunnel.Key) (tunnel.Config, error) {
	port, err := FreePort(local)
	if err != nil {
		return tunnel.Config{}, err
	}
	return tunnel.Config{
		Name: Name(id), Kind: kind, Local: netip.AddrPortFrom(local, port),
		MTU: c.Network.MTU, PrivateKey: private, Dir: Dir(c), Lease: Lease(),
	}, nil
}

// Up is tunnel.Up, with a lease from now on: since its end was agreed on the clock may have been stepped by hours.
func Up(ctx context.Context, end tunnel.Config) (*tunnel.Tunnel, error) {
	end.Lease = Lease()
	return tunnel.Up(ctx, end)
}

// FreePort finds one that nobody has now.
func FreePort(at netip.Addr) (uint16, error) {
	conn, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(at, 0)))
	if err != nil {
		return 0, fmt.Errorf("find a free port at %s: %w", at, err)
	}
	defer conn.Close()
	return uint16(conn.LocalAddr().(*net.UDPAddr).Port), nil //nolint:gosec // a port fits
}

// endTries is how often another port is tried, which makes other inner addresses.
const endTries = 50

// Answering is New of who knows the other end: on a port by which the tunnel's inner addresses are nobody's here,
// nor among those that are used there, as far as that is known.
func Answering(c *config.Config, id, kind string, local netip.Addr, remote netip.AddrPort, private tunnel.Key, there []netip.Prefix) (end tunnel.Config, err error) {
	for range endTries {
		if end, err = New(c, id, kind, local, private); err != nil {
			return end, err
		}
		if end.Remote = remote; kind == tunnel.VXLAN {
			end.Local = netip.AddrPortFrom(local, remote.Port())
		}
		if err = InnerFree(c, end); err == nil && end.Meets(there) {
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

// Name is the device of the tunnel of a detour, at most 15 characters: its id, where that is a migration's, and else a hash
// of it, which another may have.
func Name(id string) string {
	if !migration.ValidID(id) {
		id = hashID(id)
	}
	return "gwt-" + strings.TrimPrefix(id, "m-")
}

// hashID shortens any id to the form of a migration's, for device names.
func hashID(id string) string {
	h := fnv.New32a()
	h.Write([]byte(id))
	return "m-" + hex.EncodeToString(h.Sum(nil))
}

// InnerFree refuses a tunnel whose inner addresses another device of this host has.
func InnerFree(c *config.Config, end tunnel.Config) error {
	by, err := tunnel.InnerTaken(end)
	if err != nil || by == "" {
		return err
	}
	own, peer := tunnel.InnerAddrs(end.Local, end.Remote)
	return &migration.Problem{Code: migration.CodePath, Text: fmt.Sprintf(
		"tunnel to %s: its inner addresses %s and %s are those of device %s on host %s; try again: another port makes others", end.Remote, own, peer, by, c.Host)}
}

// At is at which of its uplinks this host has its end of a tunnel to n: at the one that is asked for, where
// guests' traffic gets there by that, else at the first.
func At(c *config.Config, n config.Neighbour, asked netip.Addr) (netip.Addr, error) {
	paths := c.GuestPaths(n)
	if len(paths) == 0 {
		return netip.Addr{}, &migration.Problem{Code: migration.CodePath, Text: "no uplink carries guests' traffic"}
	}
	if slices.ContainsFunc(paths, func(p peer.Path) bool { return p.Local == asked }) {
		return asked, nil
	}
	return paths[0].Local, nil
}
