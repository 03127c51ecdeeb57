package agent

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"slices"

	"godwit/agent/care"
	"godwit/agent/detour"
	"godwit/agent/limits"
	"godwit/agent/owed"
	"godwit/agent/peer"
	"godwit/agent/talk"
	"godwit/migration"
)

// A guest comes home to any host of its old address's site while another one stands for that address: its home, which
// sends it away, or its subnet agent. The host asks it to give the address back at the flip; what still comes to it
// then goes to the guest's NIC over the LAN. Where it does not answer when the host makes ready, the guest stays a
// visitor, and the address where it was at home.

// lender is the host of this site that stands for addresses with which a guest comes here and will give them back, and
// which; "" where there is none. The host that the guest comes from stands for none: the guest has them there. What
// this host is the router of itself comes as a visitor, or the guest could not leave again (wayBack).
func (a *Agent) lender(ctx context.Context, plan migration.Plan, mac net.HardwareAddr) (string, []netip.Addr) {
	by := map[string][]detour.ReturnedAddr{}
	for _, held := range plan.Held {
		n, ok := a.config.Peer(held.Home)
		addr := held.Prefix.Addr()
		if ok && held.Home != plan.From && n.Site == a.config.Site && a.config.Network.SubnetOf(addr).Contains(addr) && !a.config.Network.IsItself(held.Gateway) {
			by[held.Home] = append(by[held.Home], detour.ReturnedAddr{Addr: addr, MAC: mac.String()})
		}
	}
	for host, addrs := range by { // a second host's would go on as visitors
		a.owedWords.Forget(host, plan.Guest)
		if err := a.askBack(ctx, host, detour.GiveBack{Guest: plan.Guest, Move: detour.MoveOf(plan), Addresses: addrs, Step: detour.BackReady}); err != nil {
			a.log.Warn("the guest comes as a visitor", "migration", plan.ID, "home", host, "error", err)
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

func (a *Agent) askBack(ctx context.Context, host string, ask detour.GiveBack) error {
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

// fetchHome has who stands for it, such as a subnet agent, give back what comes with detour id, once it is led to the
// guest's taps here. On error it is led where it was before.
func (a *Agent) fetchHome(ctx context.Context, id string) error {
	d, ok := a.detours.Get(id)
	if !ok || d.Lender == "" {
		return nil
	}
	err := a.askBack(ctx, d.Lender, d.AskBack(detour.BackHome))
	if err != nil {
		return fmt.Errorf("%w; %w", err, a.sendAway(context.WithoutCancel(ctx), id))
	}
	return nil
}

// sendAway undoes fetchHome, also at that host, which is asked on where it does not answer.
func (a *Agent) sendAway(ctx context.Context, id string) error {
	if d, ok := a.detours.Get(id); ok && d.Lent {
		if err := a.askBack(ctx, d.Lender, d.AskBack(detour.BackAway)); err != nil {
			a.log.Warn("send addresses away again", "detour", id, "error", err)
			a.askLater(d.Lender, d.AskBack(detour.BackAway))
		}
	}
	return a.detours.SendAway(id)
}

// returned makes this host the home of the addresses that came home to it, and tells the
// host that stood for them.
func (m *incoming) returned() error {
	d, ok := m.a.detours.Get(m.plan.ID)
	if !ok || !d.Lent {
		return nil
	}
	done := d.AskBack(detour.BackDone)
	m.work.guest.Remember(func(h *care.Held) {
		for i := range h.Addresses {
			if addr := &h.Addresses[i]; slices.ContainsFunc(done.Addresses, func(r detour.ReturnedAddr) bool { return r.Addr == addr.Prefix.Addr() }) {
				addr.Home = m.a.config.Host
			}
		}
	})
	m.a.askLater(d.Lender, done)
	return m.a.guests.Save(m.work.guest)
}

// askLater asks on, beside everything else, until that is answered.
func (a *Agent) askLater(host string, ask detour.GiveBack) {
	a.owedWords.Owe(owed.Word{Host: host, Ask: ask})
}

// keepAway tells those who stand for addresses itself that the guest stays here, where the host that had
// their addresses back does not answer: it may be gone.
func (m *outgoing) keepAway() {
	h := m.guest.Held()
	by := map[string][]detour.ReturnedAddr{}
	for _, addr := range m.plan.Held {
		if m.givenBack(addr.Prefix.Addr()) {
			by[addr.Home] = append(by[addr.Home], detour.ReturnedAddr{Addr: addr.Prefix.Addr(), MAC: h.Description.NICs[h.Active].MAC})
		}
	}
	for host, addrs := range by {
		m.a.askLater(host, detour.GiveBack{Guest: m.plan.Guest, Move: detour.MoveOf(m.plan), Addresses: addrs, Step: detour.BackAway})
	}
}

// peerGiveBack performs a step for a host of the site, to which the guest may come, or for
// the one that has it, where it stays.
func (a *Agent) peerGiveBack(r *http.Request) (any, error) {
	var ask detour.GiveBack
	if err := peer.Decode(r, &ask); err != nil {
		return nil, err
	}
	caller := peer.Caller(r)
	n, known := a.config.Peer(caller)
	stays := ask.Step == detour.BackAway && a.leadsTo(caller, ask)
	if (!known || n.Site != a.config.Site) && !stays {
		return nil, talk.NotBelieved("give addresses back: %s is no other host of site %s", caller, a.config.Site)
	}
	macs := map[netip.Addr]net.HardwareAddr{}
	for _, r := range ask.Addresses {
		mac, err := net.ParseMAC(r.MAC)
		if err != nil || len(mac) != 6 || mac[0]&1 != 0 {
			return nil, talk.NotBelieved("give address %s back: %.40q is no NIC's", r.Addr, r.MAC)
		}
		macs[r.Addr] = mac
	}
	if len(macs) == 0 || len(macs) != len(ask.Addresses) || len(macs) > migration.MostAddresses {
		return nil, talk.NotBelieved("give %d addresses back", len(ask.Addresses))
	}
	if n := len(ask.Move); n > detour.MostMove { // it is kept
		return nil, talk.NotBelieved("give addresses back for a move of %d bytes", n)
	}
	return nil, a.giveBack(ask, macs, caller)
}

// leadsTo says whether all that is asked of is of a guest whose host is the caller.
func (a *Agent) leadsTo(caller string, ask detour.GiveBack) bool {
	found := 0
	for _, d := range a.detours.List(ask.Guest) {
		for _, away := range d.Away {
			if d.Peer == caller && slices.ContainsFunc(ask.Addresses, func(r detour.ReturnedAddr) bool { return r.Addr == away.Addr }) {
				found++
			}
		}
	}
	return found > 0 && found == len(ask.Addresses)
}

// concerned are the detours by which packets to addresses of macs, of the guest, are led away: how many addresses, by
// which detours, and how many more are meant by a word that is out of date.
func (a *Agent) concerned(ask detour.GiveBack, macs map[netip.Addr]net.HardwareAddr) (found int, ids []string, late int) {
	for _, d := range a.detours.List(ask.Guest) {
		for _, away := range d.Away {
			switch {
			case macs[away.Addr] == nil:
			case !d.Heeds(ask):
				late++
			default:
				found++
				ids = append(ids, d.ID)
			}
		}
	}
	return found, ids, late
}

func (a *Agent) giveBack(ask detour.GiveBack, macs map[netip.Addr]net.HardwareAddr, caller string) error {
	found, ids, late := a.concerned(ask, macs)
	_, absent := a.guests.Find(ask.Guest)
	switch {
	case found == 0 && late > 0:
		a.log.Info("leave addresses as they are: it was asked anew since", "guest", ask.Guest, "by", caller, "move", ask.Move, "step", ask.Step)
		return nil
	case ask.Step == detour.BackDone && found == 0:
		return nil // ended already
	case found != len(macs) || absent == nil:
		return &migration.Problem{Code: migration.CodeAddress, Text: fmt.Sprintf("give back: host %s does not stand for all of guest %s's addresses", a.config.Host, ask.Guest)}
	case !slices.Contains([]string{detour.BackReady, detour.BackHome, detour.BackAway, detour.BackDone}, ask.Step):
		return &migration.Problem{Code: migration.CodeUsage, Text: fmt.Sprintf("give back: step %.40q is unknown", ask.Step)}
	}
	led := false
	err := a.detours.Change(ask.Guest, func(all map[string]*detour.Detour) {
		for _, d := range all {
			if d.Guest == ask.Guest && d.Heeds(ask) {
				led = d.GiveBack(ask, macs) || led
			}
		}
	})
	a.log.Info("gives addresses back", "guest", ask.Guest, "to", caller, "step", ask.Step, "error", err)
	if err == nil && (led || ask.Step == detour.BackAway) {
		for _, id := range ids {
			a.announce(id)
		}
	}
	return err
}
