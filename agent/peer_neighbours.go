package agent

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"

	"godwit/agent/api"
	"godwit/agent/capable"
	"godwit/agent/detour"
	"godwit/agent/limits"
	"godwit/agent/peer"
	"godwit/agent/talk"
	"godwit/internal/oneline"
)

func (a *Agent) peerPresence(r *http.Request) (any, error) {
	under, unknown, err := a.guestsHere()
	if err != nil {
		a.rarely.warn(a.log, "another host asks how many guests are here", "error", err)
	}
	said := talk.Presence{Guests: len(under) + len(unknown), Free: a.freeForGuests()}
	if guest := r.FormValue("guest"); guest != "" {
		caller := peer.Caller(r)
		said.LedOn = slices.ContainsFunc(a.detours.List(guest), func(d detour.Detour) bool { return d.Peer != caller && d.LeadsAway() })
		has := said.LedOn || a.mayBeHere(guest)
		said.Has = &has
	}
	return said, nil
}

// mayBeHere says whether a guest is here, or may be: under care, on its way, being started, with a QEMU that does not
// answer yet, by a journal that is not over, or by a file that cannot be read.
func (a *Agent) mayBeHere(guest string) bool {
	_, err := a.guests.Find(guest)
	return err == nil || a.guests.Expects(guest) || a.isSilent(guest) != nil || a.isComing(guest) ||
		a.guests.Readable(guest) != nil || a.journalLeft(guest, "") != nil
}

// freeForGuests is the memory that this host has for more guests, beside those on their way here, bytes; nil: not known.
func (a *Agent) freeForGuests() *int64 {
	free, err := capable.AvailableMemory()
	if err != nil {
		return nil
	}
	free = max(free-a.config.MemoryReserve-a.owed(everyone).memory, 0)
	return &free
}

// apiNeighbours asks all other hosts that this one knows, at once.
func (a *Agent) apiNeighbours(r *http.Request) (any, error) {
	all := a.neighbours()
	var asked sync.WaitGroup
	for i := range all {
		asked.Go(func() { a.askPresence(r.Context(), &all[i]) })
	}
	asked.Wait()
	return all, nil
}

// neighbours are the other hosts that this one knows.
func (a *Agent) neighbours() []api.NeighbourInfo {
	all := make([]api.NeighbourInfo, 0, len(a.config.Peers))
	for _, p := range a.config.Peers {
		all = append(all, api.NeighbourInfo{Host: p.Host, Site: p.Site})
	}
	return all
}

func (a *Agent) askPresence(ctx context.Context, n *api.NeighbourInfo) {
	ctx, cancel := limits.Presence.On(ctx)
	defer cancel()
	link, _, err := a.link(n.Host)
	var said talk.Presence
	began := time.Now()
	if err == nil {
		err = link.Call(ctx, http.MethodGet, "/v1/host", nil, &said)
	}
	up := err == nil
	if n.Up = &up; !up {
		n.State = oneline.Of(fmt.Sprintf("does not answer: %v", limits.Says(ctx, err)))
		return
	}
	n.Guests, n.Free = &said.Guests, said.Free
	n.State = "up, " + oneline.Many(said.Guests, "guest")
	if said.Free != nil {
		n.State += fmt.Sprintf(", %d MiB of memory free", *said.Free>>20)
	}
	n.State += fmt.Sprintf(", answers in %d ms", time.Since(began).Milliseconds())
}

// answers asks a host whether it does; the error says why not.
func (a *Agent) answers(ctx context.Context, host string) error {
	link, _, err := a.link(host)
	if err != nil {
		return err
	}
	ctx, cancel := limits.Presence.On(ctx)
	defer cancel()
	return limits.Says(ctx, link.Call(ctx, http.MethodGet, "/v1/host", nil, nil))
}
