package detour

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"godwit/netstate"
)

// ComeHome takes back what this home sends away of the addresses that come with
// detour id, and leads it to the guest's taps here, where it waits. Done twice, it
// is done once.
func (s *Store) ComeHome(id string) error {
	d, found := s.Get(id)
	if !found {
		return fmt.Errorf("detour %s: there is none", id)
	}
	var not error
	err := s.Change(d.Guest, func(all map[string]*Detour) { not = bringHome(all, all[id]) })
	return cmp.Or(err, not)
}

// bringHome takes the addresses that come with d out of the entries that sent them away. d may have ended, and be nil,
// or its lender lead them again by now.
func bringHome(all map[string]*Detour, d *Detour) error {
	switch {
	case d == nil:
		return errors.New("the detour by which addresses come home has ended")
	case d.Lender != "" && !d.Lent && len(d.Coming) == 0:
		return fmt.Errorf("detour %s: %s leads what comes by it again", d.ID, d.Lender)
	}
	for _, other := range all {
		if other.Guest != d.Guest || other == d {
			continue
		}
		other.Away = slices.DeleteFunc(other.Away, func(a netstate.Away) bool {
			i := slices.IndexFunc(d.Coming, func(v netstate.Visiting) bool { return v.Addr == a.Addr })
			if i < 0 {
				return false
			}
			if d.Coming[i].Known = a.MAC; bytes.Equal(a.MAC, d.Coming[i].MAC) { // as the neighbours here may know it
				d.Coming[i].Known = a.Known
			}
			if d.Sent == nil {
				d.Sent = map[string][]netstate.Away{}
			}
			d.Sent[other.ID] = append(d.Sent[other.ID], a)
			return true
		})
	}
	for _, v := range d.Coming {
		if v.AtHome() {
			d.Visiting = append(d.Visiting, v)
		} else {
			cameBy(all, d, v) // on by the way that it had from its home
		}
	}
	d.Coming, d.Lent = nil, d.Lender != ""
	return nil
}

// cameBy makes the entry by which an address once came here that of the guest as it
// comes now, by the detour now.
func cameBy(all map[string]*Detour, now *Detour, v netstate.Visiting) {
	for _, d := range all {
		for i := range d.Visiting {
			if d.Guest == now.Guest && d.Visiting[i].Addr == v.Addr {
				d.Visiting[i], d.Taps, d.OffLink = v, v.Taps, now.OffLink
			}
		}
	}
}

// SendAway undoes ComeHome.
func (s *Store) SendAway(id string) error {
	d, ok := s.Get(id)
	if !ok || len(d.Sent) == 0 && !d.Lent {
		return nil
	}
	return s.Change(d.Guest, func(all map[string]*Detour) { sendBack(all, all[id]) })
}

// sendBack undoes bringHome; nothing of d is left where it has ended meanwhile, and is nil.
func sendBack(all map[string]*Detour, d *Detour) {
	if d == nil {
		return
	}
	d.Visiting = slices.DeleteFunc(d.Visiting, netstate.Visiting.AtHome)
	for other, away := range d.Sent {
		if all[other] != nil {
			all[other].Away = append(all[other].Away, away...)
		}
		for _, a := range away {
			wentBy(all, d, a.Addr)
		}
	}
	d.Sent, d.Lent = nil, false
}

// wentBy undoes cameBy: the guest has no taps here, see Leave.
func wentBy(all map[string]*Detour, now *Detour, addr netip.Addr) {
	for _, d := range all {
		for i := range d.Visiting {
			if v := &d.Visiting[i]; d.Guest == now.Guest && v.Addr == addr {
				v.Tap, v.Taps, d.Taps, d.OffLink = "", nil, nil, nil
			}
		}
	}
}
