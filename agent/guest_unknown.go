package agent

import (
	"slices"

	"godwit/agent/api"
	"godwit/agent/care"
	"godwit/agent/guests"
	"godwit/migration"
)

// A guest may run here, and not be under care (yet): its QEMU does not answer the agent that was started, or misses
// pages and cannot, or what was remembered of it cannot be read. Who looks what is here, such as before the host is
// booted, is told of it.

// The status of such guests, beside api.StatusStarving. A guest under care whose QEMU does not answer has one that begins so, too.
const (
	statusSilent = "unknown: its QEMU has not answered since the agent was started"
	statusUnread = "unknown: what was remembered of it cannot be read, see the agent's log"
)

// guestsHere are the guests under care, and those that may run here beside them. The error says why that is not known.
func (a *Agent) guestsHere() (under []*guests.Guest, unknown []api.GuestInfo, err error) {
	names, err := a.guests.Unread()
	if err != nil {
		return nil, nil, err
	}
	add := func(h care.Held, status, id string) {
		gi := a.guestInfo(guests.New(h, nil))
		gi.Status, gi.Migration = status, id
		unknown = append(unknown, gi)
	}
	for _, name := range names {
		unknown = append(unknown, api.GuestInfo{Name: name, Host: a.config.Host, Status: statusUnread, Addresses: []migration.Address{}, Taps: []string{}, MACs: []string{}})
	}
	for _, h := range a.guests.AllSilent() {
		add(h, statusSilent, "")
	}
	for _, m := range a.starvingNow() {
		add(m.expected(), api.StatusStarving, m.plan.ID)
	}
	under = a.guests.All() // last: what answers by now is among these
	return under, slices.DeleteFunc(unknown, func(gi api.GuestInfo) bool {
		return slices.ContainsFunc(under, func(g *guests.Guest) bool { return g.Name() == gi.Name })
	}), nil
}

// starvingNow are the migrations whose guests may wait here for pages, and of whom nothing else is known.
func (a *Agent) starvingNow() (out []*incoming) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, m := range a.incoming {
		if m.starving.Load() {
			out = append(out, m)
		}
	}
	return out
}
