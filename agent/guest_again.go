package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"godwit/agent/api"
	"godwit/agent/care"
	"godwit/agent/described"
	"godwit/agent/guests"
	"godwit/agent/leftover"
	"godwit/agent/limits"
	"godwit/agent/peer"
	"godwit/internal/oneline"
	"godwit/migration"
	"godwit/vm/guest"
)

// A guest that has ended here is started again by a person's word. Where every host that this one knows says that it
// has none of that name, nor ever had a later right to it, and its disks here are as it left them, that is all; else
// the person says that it runs nowhere. A host that has it is believed whatever a person says.

// apiStartAgain takes a guest under care again that has ended here: one that an agent had started boots by its
// own disks, one that was adopted is adopted again. On error nothing of it runs.
func (a *Agent) apiStartAgain(r *http.Request) (any, error) {
	var word api.StartAgain
	if err := peer.DecodeKnown(r, &word); err != nil {
		return nil, err
	}
	name := r.PathValue("name")
	if err := a.notUnderCare(name); err != nil {
		return nil, err
	}
	e, err := a.guests.Ended(name)
	if err == nil {
		err = a.mayStart(e.Held.Description)
	}
	if err != nil {
		return nil, err
	}
	g, err := a.startEnded(r.Context(), e, word.Fenced)
	if err != nil {
		return nil, err
	}
	if err := a.guests.Save(g); err != nil {
		return nil, errors.Join(err, a.letGo(g))
	}
	a.log.Info("a guest that had ended is under care again", "guest", name, "ended", e.At, "epoch", g.Held().Epoch, "fenced", word.Fenced)
	return g.Held(), nil
}

func (a *Agent) startEnded(ctx context.Context, e care.Ended, fenced bool) (*guests.Guest, error) {
	if e.Adopted() {
		g, err := a.adopt(ctx, e.Held.Description)
		if err != nil {
			return nil, notAgain(e, migration.CodeGuest, "somebody else had started it, and does that first, by its QMP socket %s; then it is adopted again: %v", e.Held.Description.QMP, err)
		}
		return g, nil
	}
	h, err := a.again(e)
	if err != nil {
		return nil, err
	}
	return a.startAs(ctx, h, func(ctx context.Context) error { return a.mayRunAgain(ctx, e, fenced) })
}

func notAgain(e care.Ended, code migration.Code, format string, args ...any) error {
	return &migration.Problem{Code: code, Text: fmt.Sprintf("start guest %s, which ended here at %s: ",
		e.Held.Description.Name, e.At.UTC().Format(time.DateTime+" MST")) + oneline.Of(fmt.Sprintf(format, args...))}
}

// again is what is remembered of a guest that boots anew where it ended, by the next right. What it had of another
// site's is not led here any more; what its last handover gave it, it is given again as it answers (boots).
func (a *Agent) again(e care.Ended) (care.Held, error) {
	h := e.Held
	h.Epoch++
	h.By = care.BegunHere
	h.Dir, h.Taps, h.ToDrop, h.Unheard, h.Starting = a.guestDir(h.Description.Name, fmt.Sprint(h.Epoch)), nil, nil, nil, false
	if len(h.Description.Start) == 0 { // of an image, whose guests have no address of their own
		h.Addresses, h.Active, h.Endpoint, h.Table, h.Boot = nil, 0, 0, guest.FirstTable, ""
		return h, nil
	}
	has, _ := h.Handed()
	if len(has) == 0 {
		has = h.Addresses
	}
	h.Addresses = nil
	for _, addr := range has {
		if addr.Home == a.config.Host {
			h.Addresses = append(h.Addresses, addr)
		}
	}
	if len(h.Addresses) == 0 && len(has) > 0 {
		return h, notAgain(e, migration.CodeAddress, "its address %s is at home on %s, which leads it here no more; start it there by hand, with its disks, and adopt it", has[0].Prefix.Addr(), has[0].Home)
	}
	return h, nil
}

// mayRunAgain says why a guest must not be started again, or what a person has to vouch for. Nobody else gets its name
// here meanwhile.
func (a *Agent) mayRunAgain(ctx context.Context, e care.Ended, fenced bool) error {
	name := e.Held.Description.Name
	if now, err := a.guests.Ended(name); err != nil || !now.At.Equal(e.At) {
		return cmp.Or(err, notAgain(e, migration.CodeBusy, "it was here again since; see `godwit guest ls`"))
	}
	lacks, changed := guests.LacksDisk(e)
	if lacks != "" {
		return notAgain(e, migration.CodeGuest, "%s", lacks)
	}
	uncared, err := leftover.WithoutCare(ctx, a.config)
	if err != nil {
		return notAgain(e, migration.CodeInternal, "whether a QEMU runs it without care is not known: %v", err)
	}
	if i := slices.IndexFunc(uncared, func(t leftover.Thing) bool { return t.Guest == name }); i >= 0 {
		return notAgain(e, migration.CodeBusy, "it may run here, without care: %s", uncared[i])
	}
	doubts, err := a.doubtsElsewhere(ctx, e)
	if err != nil {
		return err
	}
	if changed != "" {
		doubts = append(doubts, changed)
	}
	switch {
	case len(doubts) == 0:
	case !fenced:
		return notAgain(e, migration.CodeBusy, "%s; if you are sure that it runs nowhere, and that no disks of it are newer than those here, say so by `godwit guest start %s --fenced`", strings.Join(doubts, "; "), name)
	default:
		a.log.Warn("a guest is started again by a person's word", "guest", name, "ended", e.At, "although", doubts)
	}
	return nil
}

// doubtsElsewhere are why a guest that ended here may run elsewhere, or have run there since, and nobody knows. The
// error is of a host that says so.
func (a *Agent) doubtsElsewhere(ctx context.Context, e care.Ended) (doubts []string, err error) {
	h := e.Held
	if epoch := a.latestRight(h.Description.Name); epoch > h.Epoch {
		doubts = append(doubts, laterRight("this host", epoch, h.Epoch))
	}
	if h.Unheard != nil {
		switch err := a.askHeard(ctx, *h.Unheard, h.Epoch); {
		case errors.Is(err, errSourceSays):
			return nil, notAgain(e, migration.CodeBusy, "%v", err)
		case err != nil:
			doubts = append(doubts, err.Error())
		}
	}
	said, errs := make([]string, len(a.config.Peers)), make([]error, len(a.config.Peers))
	var asked sync.WaitGroup
	for i, p := range a.config.Peers {
		asked.Go(func() { said[i], errs[i] = a.knowsLater(ctx, p.Host, e) })
	}
	asked.Wait()
	if err := cmp.Or(append(errs, ctx.Err())...); err != nil {
		return nil, err
	}
	return append(doubts, slices.DeleteFunc(said, func(s string) bool { return s == "" })...), nil
}

func laterRight(host string, epoch, here uint64) string {
	return fmt.Sprintf("%s knows of a later right to run one of that name, epoch %d, and it ended here by epoch %d", host, epoch, here)
}

// knowsLater asks another host about a guest that ended here: what it knows of it that is later, or why that is not
// known. The error is that it has the guest, or leads to where that went.
func (a *Agent) knowsLater(ctx context.Context, host string, e care.Ended) (doubt string, err error) {
	link, _, err := a.link(host)
	if err != nil {
		return "", err
	}
	name := e.Held.Description.Name
	said, err := askAbout(ctx, link, name)
	switch {
	case err != nil:
		return fmt.Sprintf("whether it is on %s is not known: %v", host, limits.Says(ctx, err)), nil
	case said.Has == nil:
		return fmt.Sprintf("whether it is on %s is not known: the agent there is of a release that does not say", host), nil
	case said.LedOn:
		return "", notAgain(e, migration.CodeBusy, "%s leads what comes for it on to another host; see `godwit guest ls` there", host)
	case *said.Has:
		return "", notAgain(e, migration.CodeBusy, "%s has a guest of that name, or may have", host)
	case said.Ended != nil:
		return fmt.Sprintf("one of that name ended on %s, too, at %s", host, said.Ended.UTC().Format(time.DateTime+" MST")), nil
	case said.Epoch > e.Held.Epoch:
		return laterRight(host, said.Epoch, e.Held.Epoch), nil
	}
	return "", nil
}

// bootOwn boots a guest by its description's own command, with its disks here and those addresses. On error its QEMU
// may be there.
func (a *Agent) bootOwn(ctx context.Context, g *guests.Guest, addrs []migration.Address) error {
	if err := a.giveOwn(ctx, g, addrs); err != nil {
		return err
	}
	if err := a.guests.Begin(g); err != nil {
		return fmt.Errorf("start guest %s: %w", g.Name(), err)
	}
	machine, err := described.Boot(ctx, g.Held(), g.Taps())
	if err != nil {
		return fmt.Errorf("start guest %s: %w", g.Name(), err)
	}
	g.RunsIn(machine)
	if g.Held().Description.Silent() {
		g.SpeakBy(a.fromOutside(g))
	}
	if err := limits.Start.Do(ctx, machine.Cont); err != nil {
		return fmt.Errorf("start guest %s: %w", g.Name(), err)
	}
	return nil
}

// giveOwn gives an expected guest the addresses that it had, or says who has one by now.
func (a *Agent) giveOwn(ctx context.Context, g *guests.Guest, addrs []migration.Address) error {
	own, err := net.InterfaceAddrs()
	if err != nil {
		return fmt.Errorf("start guest %s: list this host's addresses: %w", g.Name(), err)
	}
	taken := func(addr netip.Addr, whose string) error {
		return &migration.Problem{Code: migration.CodeAddress, Text: fmt.Sprintf("start guest %s: its address %s is %s by now; free it first", g.Name(), addr, whose)}
	}
	for _, held := range addrs {
		if by, used := a.book.Used(ctx, held.Prefix.Addr()); used {
			return taken(held.Prefix.Addr(), "that of "+by+" on the LAN")
		}
	}
	return a.book.Claim(g.Name(), func(others map[netip.Addr]string) error {
		for _, held := range addrs {
			addr := held.Prefix.Addr()
			if whose := a.book.Whose(addr, own); whose != "" {
				return taken(addr, whose)
			}
			if owner, has := others[addr]; has && owner != g.Name() {
				return taken(addr, "guest "+owner+"'s")
			}
		}
		a.guests.GiveAddresses(g, addrs)
		return nil
	})
}
