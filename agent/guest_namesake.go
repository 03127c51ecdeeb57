package agent

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"time"

	"godwit/agent/config"
	"godwit/agent/talk"
	"godwit/internal/clock"
	"godwit/migration"
)

// A guest that left, and whose addresses this host sends after it still, is known here by its name alone. Another of
// that name that comes would be taken for it: its addresses would be forgotten, or led to the other.

// namesake is the error of a guest that is to come and is not the one of its name that left here.
func (a *Agent) namesake(guest string, d config.Description) error {
	known := func(mac net.HardwareAddr) bool { return len(mac) == 0 || hasNIC(d, mac) }
	if led := a.ledAfter(guest, known); led != "" {
		return &migration.Problem{Code: migration.CodeBusy, Text: fmt.Sprintf(
			"host %s refuses guest %s: another guest of that name left it, and %s; wait for that, end that guest, or move this one by another name", a.config.Host, guest, led)}
	}
	return nil
}

// namesakeHere is that of a guest that is started here, or adopted: its end, or its next move, would take away what
// leads after the other one. One that is started is never that which left; one that is adopted is, where it has a NIC
// of it.
func (a *Agent) namesakeHere(d config.Description) error {
	itself := func(mac net.HardwareAddr) bool { return d.QMP != "" && (len(mac) == 0 || hasNIC(d, mac)) }
	if led := a.ledAfter(d.Name, itself); led != "" {
		return &migration.Problem{Code: migration.CodeBusy, Text: fmt.Sprintf(
			"guest %s: a guest of that name left host %s, and %s; wait for that, end that guest, or give this one another name; if it runs nowhere any more: `godwit guest forget %s --away`", d.Name, a.config.Host, led, d.Name)}
	}
	return nil
}

func hasNIC(d config.Description, mac net.HardwareAddr) bool {
	return slices.ContainsFunc(d.NICs, func(n config.NIC) bool { return slices.Equal(n.Hardware(), mac) })
}

// ledAfter is what this host leads after a guest of that name which left, in words, but for what is of one that is but,
// by the MAC that it had; "": nothing.
func (a *Agent) ledAfter(guest string, but func(net.HardwareAddr) bool) string {
	for _, away := range a.detours.List(guest) {
		for _, sent := range away.SendsAway() {
			if but(sent.MAC) {
				continue
			}
			ends := "for good"
			if left := clock.Until(away.Until); !away.Until.IsZero() && left > 0 {
				ends = "for " + left.Round(time.Second).String() + " still"
			}
			return fmt.Sprintf("its address %s is led to %s %s", sent.Addr, away.Peer, ends)
		}
	}
	return ""
}

// comesFromThere is the error of a guest that is to come with addresses from a host to which they are not led: those
// whose home is here come back only from where this host leads them. (Those in transit may have been led
// another way since.) Where a host on that way does not answer, nothing is concluded from that.
func (a *Agent) comesFromThere(ctx context.Context, p migration.Plan) error {
	var sent []netip.Addr
	comesHome := func(addr netip.Addr) bool {
		return slices.ContainsFunc(p.Held, func(h migration.Address) bool { return h.Prefix.Addr() == addr && h.Home == a.config.Host })
	}
	for _, away := range a.detours.List(p.Guest) {
		for _, s := range away.SendsAway() {
			if comesHome(s.Addr) && !slices.Contains(sent, s.Addr) {
				sent = append(sent, s.Addr)
			}
		}
	}
	if len(sent) == 0 {
		return nil
	}
	var problem *migration.Problem
	err := a.leadsOn(ctx, talk.Led{Guest: p.Guest, Addresses: sent, To: p.From, Hops: talk.MostHops})
	if errors.As(err, &problem) && problem.Code == migration.CodeAddress {
		return talk.NotBelieved("guest %s comes from %s with %v, which this host leads elsewhere: %s", p.Guest, p.From, sent, problem.Text)
	}
	return nil
}
