package agent

import (
	"context"
	"errors"
	"fmt"
	"os"

	"godwit/agent/care"
	"godwit/agent/config"
	"godwit/agent/described"
	"godwit/agent/guests"
	"godwit/agent/handed"
	"godwit/agent/limits"
	"godwit/agent/talk"
	"godwit/migration"
	"godwit/vm/qemu"
)

// adopt takes a guest under care that something else started. The guest is not
// touched; on error nothing has changed.
func (a *Agent) adopt(ctx context.Context, d config.Description) (_ *guests.Guest, err error) {
	if err := d.CheckAdopted(); err != nil {
		return nil, err
	}
	if other := a.adoptedBy(d.QMP); other != "" {
		return nil, refuseAdoption(d, "guest %s is under care by the same QMP socket", other)
	}
	attach, cancel := limits.Adopt.On(ctx)
	defer cancel()
	machine, err := qemu.AttachSocket(attach, d.QMP, 0, d.Channel)
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return nil, refuseAdoption(d, "QEMU does not answer on %s; give it a QMP socket that nobody else uses", d.QMP)
	case err != nil:
		return nil, refuseAdoption(d, "%v", err)
	}
	g := guests.New(care.Begun(d, a.guestDir(d.Name, "1")), machine)
	defer func() {
		if err != nil {
			a.guests.Settled(g)
			g.CloseFiles()
		}
	}()
	if err := a.expectNew(g); err != nil {
		return nil, err
	}
	taps, err := described.Compare(ctx, &d, machine, a.config.Network.Bridge)
	if err != nil {
		return nil, refuseAdoption(d, "%v", err)
	}
	g.Remember(func(h *care.Held) { h.Description.VCPUs = d.VCPUs })
	for i, tap := range taps {
		g.AddTap(d.NICs[i].Tap, tap)
	}
	if err := a.learn(ctx, g); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(g.Held().Dir, 0o700); err != nil {
		return nil, fmt.Errorf("adopt guest %s: %w", d.Name, err)
	}
	return g, nil
}

func refuseAdoption(d config.Description, format string, args ...any) error {
	return &migration.Problem{Code: migration.CodeGuest, Text: "adopt guest " + d.Name + ": " + fmt.Sprintf(format, args...)}
}

// adoptedBy names the guest that is under care by a QMP socket already.
func (a *Agent) adoptedBy(qmp string) string {
	for _, g := range a.guests.All() {
		if g.Held().Description.QMP == qmp {
			return g.Name()
		}
	}
	return ""
}

// notHome is why an address can never come home to the host that its description names; "": it may. A home that nobody
// here knows is taken, but in this site's subnet: the guest may come from far, and from beside a host that is known.
func (a *Agent) notHome(addr migration.Address) string {
	if !config.IsWord(addr.Home) {
		return fmt.Sprintf("%.100q is no host's name", addr.Home)
	}
	return talk.Foreign(a.config, addr)
}

// learn finds out which addresses the guest has, and which NIC is active.
func (a *Agent) learn(ctx context.Context, g *guests.Guest) error {
	d := g.Held().Description
	refuse := func(format string, args ...any) error { return refuseAdoption(d, format, args...) }
	var held []migration.Address
	for _, addr := range d.Addresses {
		subnet := a.config.Network.SubnetOf(addr.Prefix.Addr())
		if addr.Home == "" {
			addr.Home = a.config.Host
		}
		if addr.Home == a.config.Host && !subnet.Contains(addr.Prefix.Addr()) {
			return refuse("address %s is not of this site's subnet; name its home", addr.Prefix)
		}
		if why := a.notHome(addr); why != "" {
			return refuse("address %s: %s; mend addresses[].home", addr.Prefix, why)
		}
		if !addr.Gateway.IsValid() {
			addr.Gateway = a.config.Network.GatewayOf(addr.Prefix.Addr().Is4())
		}
		held = append(held, addr)
	}
	if d.Channel == "" {
		if len(held) == 0 {
			return refuse("without a guest channel its description must name its addresses")
		}
		if err := a.claim(g, held); err != nil {
			return err
		}
		if d.Silent() {
			g.SpeakBy(a.fromOutside(g))
		}
		return nil
	}
	if _, err := g.Reach(ctx, limits.Adopt); err != nil {
		program := "godwit-guest"
		if d.Agent == config.AgentQGA {
			program = "qemu-ga"
		}
		return refuse("no answer on its channel %s: %v; start %s in it, or drop channel and agent, name its addresses, and write network: tunnel (docs/guest.md)",
			d.Channel, err, program)
	}
	info, err := g.Info(ctx)
	if err != nil {
		return refuse("%v", err)
	}
	owned := handed.Owned(a.config.Network, d, info)
	active, err := activeNIC(d, owned)
	if err != nil {
		return err
	}
	g.Remember(func(h *care.Held) { h.Active = active })
	if len(d.Addresses) == 0 {
		for _, p := range owned[active] {
			held = append(held, migration.Address{Prefix: p, Gateway: a.config.Network.GatewayOf(p.Addr().Is4()), Home: a.config.Host})
		}
	}
	if len(held) == 0 {
		return refuse("it has no address of this site's subnet; name its addresses in the description")
	}
	return a.claim(g, held)
}
