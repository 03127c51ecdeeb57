package detour

import (
	"bytes"
	"fmt"
	"net"
	"net/netip"
	"slices"

	"godwit/internal/clock"
	"godwit/migration"
	"godwit/netstate"
)

// GiveBack is what a host of the site asks its subnet agent for, or the home of an address.
type GiveBack struct {
	Guest string `json:"guest"`
	// Move is the migration, and its epoch, for which they are given back. What is asked for any other than the
	// last that made ready is out of date.
	Move      string         `json:"move"`
	Addresses []ReturnedAddr `json:"addresses"`
	Step      string         `json:"step"`
}

// ReturnedAddr is an address, and the NIC that has it where it comes to.
type ReturnedAddr struct {
	Addr netip.Addr `json:"addr"`
	MAC  string     `json:"mac"`
}

// MoveOf names a migration as it is tried now.
func MoveOf(plan migration.Plan) string { return fmt.Sprintf("%s/%d", plan.ID, plan.Epoch) }

// MostMove bounds what MoveOf makes of any, bytes.
const MostMove = 64

// The steps of giving back. Each may be repeated.
const (
	BackReady = "ready" // says whether it can be given back; until it is it leads into its tunnel
	BackHome  = "home"  // it leads to the LAN
	BackAway  = "away"  // it leads into its tunnel again: the guest did not come
	BackDone  = "done"  // the guest came
)

// AskBack is what is asked of the lender of the addresses that came, or come, by d.
func (d *Detour) AskBack(step string) GiveBack {
	ask := GiveBack{Guest: d.Guest, Move: d.Lending, Step: step}
	for _, v := range slices.Concat(d.Visiting, d.Coming) {
		if v.AtHome() && (len(d.Lends) == 0 || slices.Contains(d.Lends, v.Addr)) { // none: by an agent of before
			ask.Addresses = append(ask.Addresses, ReturnedAddr{Addr: v.Addr, MAC: v.MAC.String()})
		}
	}
	return ask
}

// Heeds says whether an ask is for the migration that last made ready for what d leads away, and no later word of that
// was heard: words go by several paths, and one may overtake another.
func (d *Detour) Heeds(ask GiveBack) bool {
	return ask.Step == BackReady || ask.Move == d.LentTo && (ask.Step != BackHome || ask.Move != d.LentBack)
}

// GiveBack performs a step, and says whether it leads something away which it did not. What is inactive leads to the
// LAN, to the NIC that has the address now; when the guest has come, it does so for as long as a home waits beyond a
// lease, for neighbours that have not heard.
func (d *Detour) GiveBack(ask GiveBack, macs map[netip.Addr]net.HardwareAddr) bool {
	led := false
	for i := range d.Away {
		away := &d.Away[i]
		if macs[away.Addr] == nil {
			continue
		}
		if bytes.Equal(away.Known, macs[away.Addr]) {
			away.Known = away.MAC
		}
		if away.MAC = macs[away.Addr]; ask.Step == BackAway {
			d.LentBack = ask.Move
		}
		switch ask.Step {
		case BackReady:
			d.LentTo = ask.Move
			fallthrough // an earlier migration's word that the guest did not come may never have come
		case BackAway:
			led = led || !away.Active
			away.Active = true
		case BackHome, BackDone:
			away.Active = false
		}
	}
	if ask.Step == BackDone && !slices.ContainsFunc(d.Away, func(a netstate.Away) bool { return a.Active }) {
		d.Leased, d.Until = true, clock.Now()
	}
	return led
}
