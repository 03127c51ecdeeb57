package lab

import (
	"context"
	"fmt"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"godwit/agent/api"
	"godwit/lab/scenario"
)

// Standing is a lab that stands for people to use, and how they reach its parts.
type Standing struct {
	ID       string           `json:"id"`
	Scenario string           `json:"scenario"`
	PID      int              `json:"pid"` // the process that keeps it
	Dir      string           `json:"dir"`
	Hosts    []StandingHost   `json:"hosts"`
	Guests   []StandingGuest  `json:"guests"`
	Clients  []StandingClient `json:"clients"`
	Traffic  []string         `json:"traffic"`
}

// StandingHost is a host of it.
type StandingHost struct {
	Host      string `json:"host"`
	Site      string `json:"site"`
	Socket    string `json:"socket"` // of its agent, for --socket
	Config    string `json:"config"` // of its agent, for --config
	Log       string `json:"log"`
	Namespace string `json:"namespace"` // for `ip netns exec`
}

// StandingGuest is a guest as it was booted.
type StandingGuest struct {
	Guest     string       `json:"guest"`
	Host      string       `json:"host"`
	Addresses []netip.Addr `json:"addresses"`
}

// StandingClient is a client of it.
type StandingClient struct {
	Client    string `json:"client"`
	At        string `json:"at"` // site, or internet
	Namespace string `json:"namespace"`
}

// Up builds a scenario's world, with its guests booted and its traffic running, calls ready,
// and keeps it until ctx ends; with steps they are carried out meanwhile. Then, and when
// anything fails, everything is taken down. The error says what failed or was left.
func Up(ctx context.Context, s *scenario.Scenario, opts Options, steps bool, ready func(Standing)) error {
	r, stopReaper, err := setUp(ctx, s, opts)
	if err != nil {
		return err
	}
	standing := r.standing(ctx)
	r.zero = time.Now()
	within, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	r.startLater(within)
	if r.opts.Live != nil {
		r.wg.Go(func() { r.live(within) })
	}
	ready(standing)
	if steps {
		r.wg.Go(func() { r.schedule(within) })
	}
	<-ctx.Done()
	close(r.ending)
	r.tell("taking the lab down")
	r.callOff()
	cancel()
	r.endLeases()
	r.wg.Wait()
	r.findGuests()
	for _, trouble := range r.troubles {
		r.tell(trouble)
	}
	if left := r.ours(r.w.close(stopReaper)); len(left) > 0 {
		return fmt.Errorf("lab %s: left behind: %v; `godwit lab down %s` removes it", r.w.id, left, r.w.id)
	}
	return nil
}

// findGuests asks where the guests are: people may have moved them, too.
func (r *run) findGuests() {
	ctx, cancel := context.WithTimeout(context.Background(), lastWordTime)
	defer cancel()
	for name, a := range r.w.agents {
		var here []api.GuestInfo
		if a.client.Do(ctx, http.MethodGet, "/v1/guests", nil, &here) != nil {
			continue // its guests are where they were
		}
		for _, g := range here {
			r.w.moved(g.Name, name)
		}
	}
}

// ours leaves out what people still have open of the lab, such as a log, and tells it.
func (r *run) ours(left []string) []string {
	return slices.DeleteFunc(left, func(what string) bool {
		theirs := strings.HasPrefix(what, "process ") && !strings.Contains(what, " in namespace ")
		if theirs {
			r.tell(what + " still names files of the lab; they are gone")
		}
		return theirs
	})
}

func (r *run) standing(ctx context.Context) Standing {
	w := r.w
	out := Standing{
		ID: w.id, Scenario: w.scenario.Name, PID: os.Getpid(), Dir: w.dir,
		Guests: []StandingGuest{}, Clients: []StandingClient{}, Traffic: []string{},
	}
	for _, h := range w.topo.Hosts() {
		a := w.agents[h.Name]
		out.Hosts = append(out.Hosts, StandingHost{h.Name, h.Site, a.config.Socket(), filepath.Join(a.dir, "agent.yaml"), a.logPath(), h.Namespace})
	}
	for _, g := range w.scenario.Guests {
		guest := StandingGuest{Guest: g.Name, Host: w.agentOf(g.Name).host.Name, Addresses: []netip.Addr{}}
		if info, err := r.guestInfo(ctx, g.Name); err == nil {
			for _, a := range info.Addresses {
				guest.Addresses = append(guest.Addresses, a.Prefix.Addr())
			}
		}
		out.Guests = append(out.Guests, guest)
	}
	for _, c := range w.scenario.Clients {
		out.Clients = append(out.Clients, StandingClient{c.Name, c.At, w.topo.Client(c.Name).Namespace})
	}
	for _, t := range w.scenario.Traffic {
		out.Traffic = append(out.Traffic, t.Name)
	}
	return out
}
