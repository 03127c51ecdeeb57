package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"godwit/agent/api"
	"godwit/agent/guests"
	"godwit/agent/limits"
	"godwit/agent/peer"
	"godwit/migration"
	"godwit/netstate"
)

// serveAPI answers people and programs of this host on the unix socket.
func (a *Agent) serveAPI(ctx context.Context) error {
	ln, err := listenUnix(a.config.Socket())
	if err != nil {
		return fmt.Errorf("listen on %s: %w", a.config.Socket(), err)
	}
	server := &http.Server{Handler: a.localAPI(), ReadHeaderTimeout: 10 * time.Second}
	go func() {
		if err := server.Serve(a.lasting(ln, "nobody here can ask the agent")); !errors.Is(err, http.ErrServerClosed) {
			a.log.Error("api ended", "error", err)
		}
	}()
	context.AfterFunc(ctx, func() { server.Close() })
	return nil
}

// localAPI is what people and programs on this host may ask.
func (a *Agent) localAPI() http.Handler {
	mux := http.NewServeMux()
	handle := func(pattern string, f func(*http.Request) (any, error)) { mux.HandleFunc(pattern, peer.Answering(f)) }
	handle("GET /v1/host", func(r *http.Request) (any, error) { return a.info(r.Context()) })
	handle("GET /v1/guests", func(r *http.Request) (any, error) {
		info, err := a.info(r.Context())
		return info.Guests, err
	})
	handle("GET /v1/tunnels", func(*http.Request) (any, error) { return a.tunnelUse() })
	handle("POST /v1/guests", a.apiStartGuest)
	handle("DELETE /v1/guests/{name}", a.apiStopGuest)
	handle("POST /v1/guests/{name}/call", a.apiCallGuest)
	handle("POST /v1/guests/{name}/forget", a.apiForgetGuest)
	handle("POST /v1/guests/{name}/forget-away", a.apiForgetAway)
	handle("GET /v1/ended", func(*http.Request) (any, error) { return a.guests.Ended() })
	handle("DELETE /v1/ended/{name}", a.apiDropEnded)
	handle("POST /v1/migrations", a.apiMigrate)
	handle("POST /v1/plan", a.apiPlan)
	handle("GET /v1/migrations", func(*http.Request) (any, error) { return a.records.Reports(), nil })
	handle("GET /v1/migrations/{id}", a.apiReport)
	handle("GET /v1/migrations/{id}/events", a.apiEvents)
	handle("POST /v1/migrations/{id}/abort", a.apiAbort)
	handle("POST /v1/migrations/{id}/bandwidth", a.apiBandwidth)
	mux.HandleFunc("GET /v1/events", a.apiFeed)
	mux.Handle("GET /metrics", a.metrics.Handler(a.state))
	mux.HandleFunc("POST /v1/hooks", a.apiHook)
	handle("POST /v1/hooks/{name}/answer", a.apiHookAnswer)
	handle("GET /v1/neighbours", a.apiNeighbours)
	handle("GET /v1/doubts", a.apiDoubts)
	handle("POST /v1/migrations/{id}/take-back", a.apiTakeBack)
	handle("POST /v1/migrations/{id}/give-up", a.apiGiveUp)
	handle("POST /v1/migrations/{id}/keep", a.apiKeepGuest)
	handle("POST /v1/detours/end", func(r *http.Request) (any, error) { return nil, a.endDetours(context.WithoutCancel(r.Context())) })
	handle("GET /v1/processes", a.apiProcesses)
	handle("POST /v1/shutdown", a.apiShutdown)
	return mux
}

// info is what the host is and has. Its guests' QEMUs are asked all at once, and for a while: those of one storage that
// hangs answer nobody. Where it is not known which guests are here that is an error: none would be taken for their end.
func (a *Agent) info(ctx context.Context) (api.HostInfo, error) {
	all, unknown, err := a.guestsHere()
	if err != nil {
		return api.HostInfo{}, err
	}
	info := api.HostInfo{Host: a.config.Host, Site: a.config.Site, Guests: make([]api.GuestInfo, len(all)), Neighbours: a.neighbours()}
	ctx, cancel := limits.Status.On(ctx)
	defer cancel()
	var asked sync.WaitGroup
	for i, g := range all {
		info.Guests[i] = a.guestInfo(g)
		if g.Machine() == nil {
			continue
		}
		asked.Go(func() {
			gi := &info.Guests[i]
			status, err := g.Machine().Status(ctx)
			if gi.Status = string(status); err != nil {
				gi.Status = "unknown: " + limits.Says(ctx, err).Error()
			}
		})
	}
	asked.Wait()
	info.Guests = append(info.Guests, unknown...)
	slices.SortFunc(info.Guests, func(x, y api.GuestInfo) int { return strings.Compare(x.Name, y.Name) })
	return info, nil
}

// guestInfo is what is known of a guest without its QEMU.
func (a *Agent) guestInfo(g *guests.Guest) api.GuestInfo {
	h := g.Held()
	gi := api.GuestInfo{ // its lists are never null
		Name: g.Name(), Host: a.config.Host, Memory: h.Description.Memory, Addresses: append([]migration.Address{}, h.Addresses...),
		Migration: g.Migration(), Dir: h.Dir, Taps: append([]string{}, h.Taps...), MACs: []string{}, Epoch: h.Epoch, Booted: g.Booted(),
	}
	gi.Tunnels = a.guestTunnels(a.detours.List(g.Name()))
	if flows, err := netstate.Flows(g.Name()); err == nil {
		gi.Flows = flows
	}
	for _, n := range h.Description.NICs {
		gi.MACs = append(gi.MACs, n.MAC)
	}
	if g.Machine() != nil {
		gi.PID = g.Machine().PID()
	}
	return gi
}

func (a *Agent) apiMigrate(r *http.Request) (any, error) {
	var req migration.Request
	if err := peer.DecodeKnown(r, &req); err != nil {
		return nil, err
	}
	return a.Migrate(req)
}

func (a *Agent) apiPlan(r *http.Request) (any, error) {
	var req migration.Request
	if err := peer.DecodeKnown(r, &req); err != nil {
		return nil, err
	}
	return a.Plan(r.Context(), req)
}

func (a *Agent) apiAbort(r *http.Request) (any, error) {
	id := r.PathValue("id")
	a.mu.Lock()
	m := a.outgoing[id]
	a.mu.Unlock()
	if m == nil {
		return nil, a.cannotAbort(id)
	}
	return nil, m.abortFor(r.Context(), &migration.Problem{Code: migration.CodeAsked, Text: "aborted on request"})
}

// cannotAbort is why a migration that does not leave this host now is not called off.
func (a *Agent) cannotAbort(id string) error {
	why := "no such migration leaves this host now; abort it on its source, see `godwit history`"
	if rec, err := a.records.Kept(id); err == nil {
		if outcome := rec.Snapshot().Outcome; outcome != "" {
			why = fmt.Sprintf("it is over, %s; see `godwit history --show %s`", outcome, id)
		}
	}
	return &migration.Problem{Code: migration.CodeUsage, Text: "abort " + id + ": " + why}
}

func (a *Agent) apiReport(r *http.Request) (any, error) {
	rec, err := a.records.Kept(r.PathValue("id"))
	if err != nil {
		return nil, err
	}
	return rec.Snapshot(), nil
}

// watchWait is how long a question for events waits for one.
const watchWait = 10 * time.Second

func (a *Agent) apiEvents(r *http.Request) (any, error) {
	rec, err := a.records.Kept(r.PathValue("id"))
	if err != nil {
		return nil, err
	}
	after, err := strconv.Atoi(r.FormValue("after"))
	if err != nil {
		after = 0
	}
	ctx, cancel := context.WithTimeout(r.Context(), watchWait)
	defer cancel()
	return rec.Watch(ctx, after), nil
}

func (a *Agent) apiCallGuest(r *http.Request) (any, error) {
	var call api.GuestCall
	if err := peer.DecodeKnown(r, &call); err != nil {
		return nil, err
	}
	g, err := a.guests.Find(r.PathValue("name"))
	if err != nil {
		return nil, err
	}
	if !g.HasChannel() {
		return nil, &migration.Problem{Code: migration.CodeGuest, Text: "guest " + g.Name() + ": it has no guest channel"}
	}
	wait := 30 * time.Second
	if call.WaitMS > 0 {
		wait = time.Duration(call.WaitMS) * time.Millisecond
	}
	ctx, cancel := context.WithTimeout(r.Context(), wait)
	defer cancel()
	c, err := g.Reach(ctx, limits.AskGuest)
	if err != nil {
		return nil, err
	}
	var result json.RawMessage
	err = c.Call(ctx, call.Method, call.Params, &result)
	return result, err
}

func (a *Agent) apiStopGuest(r *http.Request) (any, error) {
	g, err := a.guests.Find(r.PathValue("name"))
	if err != nil {
		return nil, err
	}
	if err := a.guests.TakeHere(g, "stop"); err != nil && !(a.isComing(g.Name()) && a.guests.Has(g)) { // a landing ends with its guest
		return nil, err
	}
	ctx := context.WithoutCancel(r.Context())
	for _, d := range a.detours.List(g.Name()) {
		if d.Leased && len(d.Visiting) > 0 && d.Peer != "" { // its home leads nobody into nothing, which may have no end
			err = errors.Join(err, a.endOfGone(ctx, d))
		}
	}
	return nil, errors.Join(err, a.stopGuest(ctx, g))
}

// apiProcesses names the QEMU process of every guest here, also of those that wait.
func (a *Agent) apiProcesses(*http.Request) (any, error) {
	out := map[string]int{}
	a.mu.Lock()
	for _, m := range a.incoming {
		if g := m.visible(); g != nil {
			out[m.plan.Guest] = g.Machine().PID()
		}
	}
	a.mu.Unlock()
	for _, g := range a.guests.All() {
		if g.Machine() != nil {
			out[g.Name()] = g.Machine().PID()
		}
	}
	return out, nil
}
