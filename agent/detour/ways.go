package detour

import (
	"cmp"
	"net/netip"
	"slices"

	"godwit/agent/config"
	"godwit/netstate"
	"godwit/netstate/tunnel"
)

// Awaited is for a guest that runs here now: it ends the wait for the addresses that came by d.
func (d *Detour) Awaited() {
	for i := range d.Visiting {
		d.Visiting[i].Waits = false
	}
}

// fits is the largest packet that d carries of a visitor in one piece, as v.Fits.
func (d *Detour) fits(v netstate.Visiting) int {
	if d.Small && !v.AtHome() && (v.Fits == 0 || v.Fits > tunnel.AlwaysWhole) {
		return tunnel.AlwaysWhole
	}
	return v.Fits
}

// Take makes d, which came up just now, the way of addresses that came by others.
func (d *Detour) Take(all map[string]*Detour, addrs []netip.Addr) {
	for _, other := range all {
		if other.Guest != d.Guest {
			continue
		}
		led := len(other.Visiting)
		other.Visiting = slices.DeleteFunc(other.Visiting, func(v netstate.Visiting) bool {
			if !slices.Contains(addrs, v.Addr) {
				return false
			}
			v.Tunnel = d.Tunnel.Name
			d.Visiting = append(d.Visiting, v)
			d.Leased, d.Until, d.For, d.OffLink = other.Leased, other.Until, other.For, cmp.Or(other.OffLink, d.OffLink)
			return true
		})
		if led > 0 && len(other.Away)+len(other.Visiting) == 0 {
			other.Up = d.Up // ended soon, when nothing is on its way through it
		}
	}
	all[d.ID] = d
}

// Replace has d be asked to go for what earlier, a detour of the same id, was asked for; nil: there
// is none. What that sent away is kept by its lease until then: nobody else knows how to.
func (d *Detour) Replace(earlier *Detour) {
	if earlier == nil {
		return
	}
	d.Standing = append(d.Standing, earlier.SendsAway()...)
	if d.Leased = earlier.Leased && len(d.Standing) > 0; d.Leased {
		d.Until, d.For = earlier.Until, earlier.For
	}
}

// SendsAway is what d sends away, or did so and will again when it is asked to go (Replace).
func (d *Detour) SendsAway() []netstate.Away {
	out := slices.DeleteFunc(slices.Clone(d.Away), func(a netstate.Away) bool { return !a.Active })
	if d.Leased {
		out = append(out, d.Standing...)
	}
	return out
}

// Stand makes what d is to stand for what it sends away, and says which that are. Entries of
// an earlier time that the guest was away end.
func (d *Detour) Stand(all map[string]*Detour) []netip.Addr {
	var stood []netip.Addr
	for _, s := range d.Standing {
		for _, other := range all {
			if other.Guest == d.Guest {
				other.Away = slices.DeleteFunc(other.Away, func(a netstate.Away) bool { return a.Addr == s.Addr })
			}
		}
		s.Tunnel, s.Active = d.Tunnel.Name, true
		d.Away, stood = append(d.Away, s), append(stood, s.Addr)
	}
	d.Standing = nil
	return stood
}

// AtHome says that all of d's addresses belong to this site: no tunnel is
// needed for them, and no lease ends them while they are used.
func (d *Detour) AtHome() bool {
	return !slices.ContainsFunc(d.Visiting, func(v netstate.Visiting) bool { return !v.AtHome() })
}

// NeedsNoTunnel says that nothing takes the tunnel of d, a leased detour: all that came by it is at home here. What
// leads it there stays, as the guest may know another host's MAC for its router.
func (d *Detour) NeedsNoTunnel() bool {
	return d.Leased && len(d.Visiting) > 0 && d.AtHome() && len(d.Away)+len(d.Coming)+len(d.Standing) == 0
}

// LedOn says that an address which came here by d is led on by another of all, to where its guest is now: d is
// its way home, where that home could not be had to send it there directly.
func (d *Detour) LedOn(all []Detour) bool {
	return slices.ContainsFunc(all, func(o Detour) bool {
		return o.ID != d.ID && slices.ContainsFunc(o.Away, func(a netstate.Away) bool {
			return slices.ContainsFunc(d.Visiting, func(v netstate.Visiting) bool { return v.Addr == a.Addr })
		})
	})
}

// LeadsAway says whether d leads anything after its guest, or did and will again.
func (d *Detour) LeadsAway() bool { return len(d.SendsAway()) > 0 }

// ComesFrom is the tunnel by which an address of the guest visits here, towards its home; "" where it is at home
// here, and false where it is not here.
func (s *Store) ComesFrom(guest string, addr netip.Addr) (string, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	v, is := s.wayHome(guest, addr)
	return v.Tunnel, is
}

// TunnelOf is the detour whose tunnel has that name; "": none but the one of id has.
func (s *Store) TunnelOf(name, id string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, d := range s.byID {
		if d.Tunnel.Name == name && d.ID != id {
			return d.ID
		}
	}
	return ""
}

// WayID is the id of the detour by which host sends addresses to where a migration has brought their guest. What home
// has handed over to it, as its subnet agent, has another than its own, which are of no home ("").
func WayID(migration, home, host string) string {
	if home != "" {
		return migration + "-" + home + "-" + host
	}
	return migration + "-" + host
}

// ComesBack says that a migration under way has taken addresses home which d led away.
func ComesBack(d Detour, all []Detour) bool {
	return slices.ContainsFunc(all, func(o Detour) bool { return !o.Leased && len(o.Sent[d.ID]) > 0 })
}

// Publish has what visits by d stand where a speaker of BGP finds it, for as long as it is not led on. Its
// guest answers for it, so nothing is waited for any more.
func (d *Detour) Publish(r config.Routes) {
	for i := range d.Visiting {
		if v := &d.Visiting[i]; !v.AtHome() {
			v.Publish, v.Direct, v.Waits = r.Table, r.Direct, false
		}
	}
}

// goesHome has what neighbours here send to a visitor go after it from the flip on, where it is led home to another
// host of this site.
func (s *Store) goesHome(guest string, v *netstate.Visiting) {
	for _, d := range s.of(guest) {
		for _, l := range d.Leaving {
			if l.Addr == v.Addr && !v.AtHome() && !v.Waits {
				v.Known, v.Leaves, v.Active = l.Known, d.Tunnel.Name, d.Led
			}
		}
	}
}

// wayHome is how an address is a visitor here: by its oldest way, towards its home, or at home.
func (s *Store) wayHome(guest string, addr netip.Addr) (netstate.Visiting, bool) {
	for _, d := range s.of(guest) {
		for _, v := range d.Visiting {
			if v.Addr == addr {
				return v, true
			}
		}
	}
	return netstate.Visiting{}, false
}

// routes says that a visitor's router is this host itself, as the guest came from another one of this link: its home
// would send all that the guest sends back here, and so on in a circle. It leaves by this host's own routes. Of one for
// whose router this host does not answer, as it is the site's own, too, that is the one that is meant.
func (s *Store) routes(v netstate.Visiting) bool {
	router := cmp.Or(v.Gateway, s.network.GatewayOf(v.Addr.Is4()))
	return !v.AtHome() && s.network.SubnetOf(v.Addr).Contains(v.Addr) && slices.Contains(s.own, router.WithZone(""))
}
