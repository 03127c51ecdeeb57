package agent

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"slices"

	"godwit/agent/care"
	"godwit/agent/detour"
	"godwit/agent/limits"
	"godwit/agent/peer"
	"godwit/internal/clock"
	"godwit/migration"
	"godwit/netstate"
)

// A guest comes home to any host of its old address's site while a subnet agent stands for
// that address. The host asks it to give the address back at the flip; what still comes to
// it then goes to the guest's NIC over the LAN. Where it does not answer when the host makes
// ready, the guest stays a visitor, and the address at the subnet agent.

// GiveBack is what a host of the site asks its subnet agent for.
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

// moveOf names a migration as it is tried now.
func moveOf(plan migration.Plan) string { return fmt.Sprintf("%s/%d", plan.ID, plan.Epoch) }

// mostMove bounds what moveOf makes of any, bytes.
const mostMove = 64

// The steps of giving back. Each may be repeated.
const (
	backReady = "ready" // says whether it can be given back; until it is it leads into its tunnel
	backHome  = "home"  // it leads to the LAN
	backAway  = "away"  // it leads into its tunnel again: the guest did not come
	backDone  = "done"  // the guest came
)

// lender is the subnet agent that stands for addresses with which a guest comes here and will
// give them back, and which; "" where there is none.
func (a *Agent) lender(ctx context.Context, plan migration.Plan, mac net.HardwareAddr) (string, []netip.Addr) {
	by := map[string][]ReturnedAddr{}
	for _, held := range plan.Held {
		n, ok := a.config.Peer(held.Home)
		addr := held.Prefix.Addr()
		if ok && held.Home == held.SubnetAgent && n.Site == a.config.Site && a.config.Network.SubnetOf(addr).Contains(addr) {
			by[held.Home] = append(by[held.Home], ReturnedAddr{addr, mac.String()})
		}
	}
	for host, addrs := range by { // a second subnet agent's would go on as visitors
		a.owedWords.forget(host, plan.Guest)
		if err := a.askBack(ctx, host, GiveBack{plan.Guest, moveOf(plan), addrs, backReady}); err != nil {
			a.log.Warn("the guest comes as a visitor", "migration", plan.ID, "subnet_agent", host, "error", err)
			continue
		}
		var out []netip.Addr
		for _, r := range addrs {
			out = append(out, r.Addr)
		}
		return host, out
	}
	return "", nil
}

func (a *Agent) askBack(ctx context.Context, host string, ask GiveBack) error {
	ctx, cancel := limits.GiveBack.On(ctx)
	defer cancel()
	link, _, err := a.link(host)
	if err == nil {
		err = link.Call(ctx, http.MethodPost, "/v1/detours/back", ask, nil)
	}
	if err = limits.Says(ctx, err); err != nil {
		return fmt.Errorf("ask %s for addresses of guest %s (%s): %w", host, ask.Guest, ask.Step, err)
	}
	return nil
}

// backBy is what is asked of the lender of the addresses that came, or come, by d.
func backBy(d *detour.Detour, step string) GiveBack {
	ask := GiveBack{Guest: d.Guest, Move: d.Lending, Step: step}
	for _, v := range slices.Concat(d.Visiting, d.Coming) {
		if v.AtHome() {
			ask.Addresses = append(ask.Addresses, ReturnedAddr{v.Addr, v.MAC.String()})
		}
	}
	return ask
}

// fetchHome has the subnet agent give back what comes with detour id, once it is led to the
// guest's taps here. On error it is led where it was before.
func (a *Agent) fetchHome(ctx context.Context, id string) error {
	d, ok := a.detours.Get(id)
	if !ok || d.Lender == "" {
		return nil
	}
	err := a.askBack(ctx, d.Lender, backBy(&d, backHome))
	if err != nil {
		return fmt.Errorf("%w; %w", err, a.sendAway(context.WithoutCancel(ctx), id))
	}
	return nil
}

// sendAway undoes fetchHome, also at a subnet agent, which is asked on where it does not answer.
func (a *Agent) sendAway(ctx context.Context, id string) error {
	if d, ok := a.detours.Get(id); ok && d.Lent {
		if err := a.askBack(ctx, d.Lender, backBy(&d, backAway)); err != nil {
			a.log.Warn("send addresses away again", "detour", id, "error", err)
			a.askLater(d.Lender, backBy(&d, backAway))
		}
	}
	return a.detours.SendAway(id)
}

// returned makes this host the home of the addresses that came home to it, and tells the
// subnet agent that stood for them.
func (m *incoming) returned() error {
	d, ok := m.a.detours.Get(m.plan.ID)
	if !ok || !d.Lent {
		return nil
	}
	done := backBy(&d, backDone)
	m.work.guest.remember(func(h *care.Held) {
		for i := range h.Addresses {
			if addr := &h.Addresses[i]; slices.ContainsFunc(done.Addresses, func(r ReturnedAddr) bool { return r.Addr == addr.Prefix.Addr() }) {
				addr.Home = m.a.config.Host
			}
		}
	})
	m.a.askLater(d.Lender, done)
	return m.a.guests.save(m.work.guest)
}

// askLater asks on, beside everything else, until that is answered.
func (a *Agent) askLater(host string, ask GiveBack) { a.owedWords.owe(owedWord{host, ask}) }

// keepAway tells subnet agents themselves that the guest stays here, where the host that had
// their addresses back does not answer: it may be gone.
func (m *outgoing) keepAway() {
	h := m.guest.held()
	by := map[string][]ReturnedAddr{}
	for _, addr := range m.plan.Held {
		if m.givenBack(addr.Prefix.Addr()) {
			by[addr.Home] = append(by[addr.Home], ReturnedAddr{addr.Prefix.Addr(), h.Description.NICs[h.Active].MAC})
		}
	}
	for host, addrs := range by {
		m.a.askLater(host, GiveBack{m.plan.Guest, moveOf(m.plan), addrs, backAway})
	}
}

// peerGiveBack performs a step for a host of the site, to which the guest may come, or for
// the one that has it, where it stays.
func (a *Agent) peerGiveBack(r *http.Request) (any, error) {
	var ask GiveBack
	if err := peer.Decode(r, &ask); err != nil {
		return nil, err
	}
	caller := peer.Caller(r)
	n, known := a.config.Peer(caller)
	stays := ask.Step == backAway && a.leadsTo(caller, ask)
	if (!known || n.Site != a.config.Site) && !stays {
		return nil, notBelieved("give addresses back: %s is no other host of site %s", caller, a.config.Site)
	}
	macs := map[netip.Addr]net.HardwareAddr{}
	for _, r := range ask.Addresses {
		mac, err := net.ParseMAC(r.MAC)
		if err != nil || len(mac) != 6 || mac[0]&1 != 0 {
			return nil, notBelieved("give address %s back: %.40q is no NIC's", r.Addr, r.MAC)
		}
		macs[r.Addr] = mac
	}
	if len(macs) == 0 || len(macs) != len(ask.Addresses) || len(macs) > migration.MostAddresses {
		return nil, notBelieved("give %d addresses back", len(ask.Addresses))
	}
	if n := len(ask.Move); n > mostMove { // it is kept
		return nil, notBelieved("give addresses back for a move of %d bytes", n)
	}
	return nil, a.giveBack(ask, macs, caller)
}

// leadsTo says whether all that is asked of is of a guest whose host is the caller.
func (a *Agent) leadsTo(caller string, ask GiveBack) bool {
	found := 0
	for _, d := range a.detours.List(ask.Guest) {
		for _, away := range d.Away {
			if d.Peer == caller && slices.ContainsFunc(ask.Addresses, func(r ReturnedAddr) bool { return r.Addr == away.Addr }) {
				found++
			}
		}
	}
	return found > 0 && found == len(ask.Addresses)
}

// concerned are the detours by which packets to addresses of macs, of the guest, are led away: how many addresses, by
// which detours, and how many more are meant by a word that is out of date.
func (a *Agent) concerned(ask GiveBack, macs map[netip.Addr]net.HardwareAddr) (found int, ids []string, late int) {
	for _, d := range a.detours.List(ask.Guest) {
		for _, away := range d.Away {
			switch {
			case macs[away.Addr] == nil:
			case !heeds(&d, ask):
				late++
			default:
				found++
				ids = append(ids, d.ID)
			}
		}
	}
	return found, ids, late
}

// heeds says whether an ask is for the migration that last made ready for what d leads away, and no later word of that was heard: words go
// by several paths, and one may overtake another.
func heeds(d *detour.Detour, ask GiveBack) bool {
	return ask.Step == backReady || ask.Move == d.LentTo && (ask.Step != backHome || ask.Move != d.LentBack)
}

func (a *Agent) giveBack(ask GiveBack, macs map[netip.Addr]net.HardwareAddr, caller string) error {
	found, ids, late := a.concerned(ask, macs)
	_, absent := a.guests.find(ask.Guest)
	switch {
	case found == 0 && late > 0:
		a.log.Info("leave addresses as they are: it was asked anew since", "guest", ask.Guest, "by", caller, "move", ask.Move, "step", ask.Step)
		return nil
	case ask.Step == backDone && found == 0:
		return nil // ended already
	case found != len(macs) || absent == nil:
		return &migration.Problem{Code: migration.CodeAddress, Text: fmt.Sprintf("give back: host %s does not stand for all of guest %s's addresses", a.config.Host, ask.Guest)}
	case !slices.Contains([]string{backReady, backHome, backAway, backDone}, ask.Step):
		return &migration.Problem{Code: migration.CodeUsage, Text: fmt.Sprintf("give back: step %.40q is unknown", ask.Step)}
	}
	led := false
	err := a.detours.Change(ask.Guest, func(all map[string]*detour.Detour) {
		for _, d := range all {
			if d.Guest == ask.Guest && heeds(d, ask) {
				led = giveBackBy(d, ask, macs) || led
			}
		}
	})
	a.log.Info("gives addresses back", "guest", ask.Guest, "to", caller, "step", ask.Step, "error", err)
	if err == nil && (led || ask.Step == backAway) {
		for _, id := range ids {
			a.announce(id)
		}
	}
	return err
}

// giveBackBy performs a step, and says whether it leads something away which it did not. What is inactive leads to the
// LAN, to the NIC that has the address now; when the guest has come, it does so for leaseGrace more, for neighbours that have not heard.
func giveBackBy(d *detour.Detour, ask GiveBack, macs map[netip.Addr]net.HardwareAddr) bool {
	led := false
	for i := range d.Away {
		away := &d.Away[i]
		if macs[away.Addr] == nil {
			continue
		}
		if bytes.Equal(away.Known, macs[away.Addr]) {
			away.Known = away.MAC
		}
		if away.MAC = macs[away.Addr]; ask.Step == backAway {
			d.LentBack = ask.Move
		}
		switch ask.Step {
		case backReady:
			d.LentTo = ask.Move
			fallthrough // an earlier migration's word that the guest did not come may never have come
		case backAway:
			led = led || !away.Active
			away.Active = true
		case backHome, backDone:
			away.Active = false
		}
	}
	if ask.Step == backDone && !slices.ContainsFunc(d.Away, func(a netstate.Away) bool { return a.Active }) {
		d.Leased, d.Until = true, clock.Now()
	}
	return led
}
