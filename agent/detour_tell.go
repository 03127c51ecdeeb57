package agent

import (
	"context"
	"errors"
	"time"

	"godwit/agent/detour"
	"godwit/internal/clock"
	"godwit/netstate"
)

// The host of an agent that starts may have been led otherwise meanwhile: by a release that answers for one NIC of a
// guest that is away, where neighbours know the other, and drops from detours.json that there is one. What they send
// there is nobody's from then on, for as long as they keep it, which routers may do for hours. So they are told of this
// host once more, with nothing that they need to know of an address that is led as ever.

const (
	tellRounds = 3               // a frame may be lost
	tellPause  = 2 * time.Second // between them, as RFC 5227 (ANNOUNCE_INTERVAL) has it
	tellEvery  = 20 * time.Millisecond
)

// tellOfAway tells neighbours where addresses of guests that are away are led from, a few times, those of one guest
// after the other's.
func (a *Agent) tellOfAway(ctx context.Context) {
	for round := 0; round < tellRounds && (round == 0 || sleep(ctx, tellPause)); round++ {
		a.tellOnce(ctx)
	}
}

func (a *Agent) tellOnce(ctx context.Context) {
	for _, listed := range a.detours.List("") {
		d, ok := a.detours.Get(listed.ID) // as it is by now
		if !ok || len(d.Away) == 0 || !a.leadsFrom(d) {
			continue
		}
		if !a.tellOf(d, a.config.Network.Bridge) || !sleep(ctx, tellEvery) { // guests here, too
			return
		}
	}
}

// leadsFrom says whether d leads from here what no guest here has, and no migration has to do with: one that has does
// it in its own time.
func (a *Agent) leadsFrom(d detour.Detour) bool {
	_, err := a.guests.Find(d.Guest)
	over := !d.Until.IsZero() && clock.Now().After(d.Until)
	return err != nil && a.guests.Readable(d.Guest) == nil && d.Leased && !over && !a.moves(d)
}

// tellOf tells the neighbours behind device that what d sends away is to be sent to this host: what is led elsewhere by
// now it does not send, and of an address in transit another is the home.
func (a *Agent) tellOf(d detour.Detour, device string) bool {
	mac, err := netstate.HardwareOf(a.config.Network.Bridge)
	for _, away := range d.Away {
		way, transit := a.detours.ComesFrom(d.Guest, away.Addr)
		if mac != nil && away.Active && !(transit && way != "") {
			err = errors.Join(err, netstate.Announce(device, away.Addr, mac))
		}
	}
	if err != nil {
		a.log.Warn("announce addresses", "detour", d.ID, "error", err)
	}
	return err == nil
}
