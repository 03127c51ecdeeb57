package detour

import (
	"cmp"
	"fmt"
	"net/netip"

	"godwit/agent/peer"
	"godwit/migration"
	"godwit/netstate/tunnel"
)

// What kinds of tunnels need of a path, and of both hosts' kernels.

// UnfitTunnel says why the plan's kind of tunnel does not do, "" if it does: path is the
// path's MTU in bytes, 0 if not known, mtu the guest's; used: there is one of IPIP already.
func UnfitTunnel(plan migration.Plan, local netip.Addr, path, mtu int, used bool) string {
	kind, outer6 := plan.Tunnel, local.Is6()
	for _, addr := range plan.Held {
		if !tunnel.Carries(kind, outer6, addr.Prefix.Addr()) {
			return fmt.Sprintf("over IPv4 it does not carry %s; use gre or wireguard", addr.Prefix.Addr())
		}
	}
	need := mtu + tunnel.Overhead(kind, outer6)
	switch {
	case kind == tunnel.IPIP && used:
		return "there is one between these addresses, and there can be no second; end that lease, or use gre or wireguard"
	case tunnel.Fragments(kind, outer6) || path >= need:
		return ""
	case path == 0:
		return fmt.Sprintf("the path's MTU is not known, and what does not fit into it is lost; it needs %d bytes, or use wireguard", need)
	}
	return fmt.Sprintf("full packets of %d bytes need %d in one piece, and the path carries %d; use wireguard, which is carried in fragments", mtu, need, path)
}

// Fitting is the largest packet, bytes, that a tunnel carries in one piece over a path of an
// MTU; 0 where those of the guest's mtu all do.
func Fitting(kind string, outer6 bool, path, mtu int) int {
	fits := path - tunnel.Overhead(kind, outer6)
	if kind != tunnel.VXLAN && kind != tunnel.GRE && kind != tunnel.IPIP {
		const block = 16 // WireGuard pads to it (its paper, §5.4.6)
		fits = fits / block * block
	}
	if fits >= mtu {
		return 0
	}
	return fits
}

// WithTunnel are those of pairs of uplinks by which this host has a tunnel of the plan's kind, by has over IPv6 or
// IPv4. The error says why it has none by any.
func WithTunnel(plan migration.Plan, pairs []peer.Path, has func(plan migration.Plan, over6 bool) error) (out []peer.Path, err error) {
	tried := map[bool]error{}
	for _, p := range pairs {
		over6 := p.Local.Is6()
		lacks, known := tried[over6]
		if !known {
			lacks = has(plan, over6)
			tried[over6] = lacks
		}
		if err = cmp.Or(err, lacks); lacks == nil {
			out = append(out, p)
		}
	}
	if len(out) > 0 {
		err = nil
	}
	return out, err
}

// Kind is the kind of d's tunnel, as it was made; "": it has none, or none any more, as its guest came home.
func (d *Detour) Kind() string {
	switch kind := d.Tunnel.Kind; {
	case d.NeedsNoTunnel():
		return ""
	case kind == tunnel.Auto, kind == "" && d.Tunnel.Remote.IsValid():
		return tunnel.WireGuard
	default:
		return kind
	}
}

// MayTake says whether d's tunnel may be led over uplinks of the family of local: one that the kernel carries, whatever
// a path's MTU is, over that in which both hosts' kernels have it.
func (d *Detour) MayTake(local netip.Addr) bool {
	kind, over6 := d.Kind(), local.Is6()
	return kind == tunnel.WireGuard || kind != "" && tunnel.Fragments(kind, over6) && d.Tunnel.Local.Addr().Is6() == over6
}
