package lab

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"net/netip"
	"strings"
	"sync"
	"time"

	"godwit/internal/clock"
	"godwit/lab/scenario"
	"godwit/lab/traffic"
	"godwit/migration"
	"godwit/vm/guest"
)

// flowTrace is what a flow's samples told, for the picture and the live view.
type flowTrace struct {
	mu       sync.Mutex
	last     traffic.Sample
	samples  []sampleRow
	subflows map[[2]string][]span // by local and remote address: when it was there
	remotes  []remotes            // each time that it was another
	longest  time.Duration        // wait since time 0
}

// remotes are how many connections had an established subflow to an address, at a time and until the
// next of these.
type remotes struct {
	at     int64
	counts map[netip.Addr]int
}

type sampleRow struct {
	at             int64
	mbps, rtt, gap float64
}

type span struct{ from, to int64 }

// startFlow connects a flow to where its guest is now.
func (r *run) startFlow(ctx context.Context, t scenario.Traffic) error {
	addresses, err := r.whereIs(ctx, t.Guest)
	if err != nil {
		return fmt.Errorf("traffic %s: %w", t.Name, err)
	}
	target, ok := addresses[0].Prefix.Addr(), true
	for _, a := range addresses {
		if a.Prefix.Addr().Is6() == (t.Family == "v6") {
			target = a.Prefix.Addr()
			break
		}
		ok = false
	}
	if !ok && target.Is6() != (t.Family == "v6") {
		return fmt.Errorf("traffic %s: guest %s has no %s address", t.Name, t.Guest, t.Family)
	}
	client, _ := clientOf(r.w.scenario, t.Client)
	port, err := r.iperf3Server(ctx, t)
	if err != nil {
		return fmt.Errorf("traffic %s: %w", t.Name, err)
	}
	r.mu.Lock()
	r.flows[t.Name] = &flowTrace{subflows: map[[2]string][]span{}}
	r.mu.Unlock()
	err = r.w.clients[t.Client].StartUntil(ctx, traffic.Flow{
		Name: t.Name, Kind: t.Kind, Target: target, Every: t.Every, Rate: t.Rate,
		Connections: t.Connections, MPTCP: client.MPTCP != "off", Command: t.Command, Port: port, Silent: t.Silent,
	})
	if err != nil { // there is nothing to stop
		r.mu.Lock()
		delete(r.flows, t.Name)
		r.mu.Unlock()
	}
	return err
}

// iperf3Server is where a flow of kind iperf3 finds a server of its own: each serves one client
// at a time, and a guest has one soon after it boots. For its second flow and later ones it
// is asked to start more.
func (r *run) iperf3Server(ctx context.Context, t scenario.Traffic) (port uint16, err error) {
	if t.Kind != traffic.Iperf3 {
		return 0, nil
	}
	port = traffic.PortIperf3
	for _, other := range r.w.scenario.Traffic {
		if other.Name == t.Name {
			break
		}
		if other.Kind == traffic.Iperf3 && other.Guest == t.Guest {
			port++
		}
	}
	command := fmt.Sprintf("for i in $(seq 100); do grep -q ':%04X 0*:0000 0A' /proc/net/tcp /proc/net/tcp6 && exit 0; sleep 0.1; done; exit 2", port)
	if port == traffic.PortIperf3 {
		if g, _ := r.w.scenario.Guest(t.Guest); g.Agent == "dhcp" || r.w.agentOf(t.Guest).goneForGood() {
			return port, nil // nobody can be asked
		}
	} else {
		command = fmt.Sprintf("for p in /usr/lib/libmptcpwrap.so /usr/lib/*/mptcpize/libmptcpwrap.so.0; do [ -e $p ] && export LD_PRELOAD=$p; done; iperf3 -s -D -p %d || exit 1; ", port) + command
	}
	if err := r.askShell(ctx, &scenario.Exec{Guest: t.Guest, Command: command}); err != nil {
		return 0, fmt.Errorf("await an iperf3 server on port %d in guest %s: %w", port, t.Guest, err)
	}
	return port, nil
}

// askShell runs a short command in a guest; an error tells what it said.
func (r *run) askShell(ctx context.Context, e *scenario.Exec) error {
	var out guest.Executed
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	err := r.w.agentOf(e.Guest).client.CallGuest(ctx, e.Guest, "exec", guest.Exec{Command: e.Command, TimeoutMS: 55000}, &out)
	if err != nil {
		return err
	}
	if out.Exit != 0 {
		return fmt.Errorf("exit %d: %s%s", out.Exit, out.Stderr, out.Stdout)
	}
	return nil
}

func clientOf(s *scenario.Scenario, name string) (scenario.Client, bool) {
	for _, c := range s.Clients {
		if c.Name == name {
			return c, true
		}
	}
	return scenario.Client{}, false
}

// flowPatience is how long a flow waits for somebody to say where its guest is.
const flowPatience = 10 * time.Second

// startLater starts the flows that begin after time 0. The run does not end before, and goes on
// after that as after a migration.
func (r *run) startLater(ctx context.Context) {
	for _, t := range r.w.scenario.Traffic {
		if t.Start == 0 {
			continue
		}
		r.starts.Add(1)
		r.background(func() {
			defer r.starts.Done()
			err := fmt.Errorf("traffic %s: %w", t.Name, errRunEnded)
			if r.due(ctx, time.Until(r.zero.Add(t.Start))) {
				err = r.startLate(ctx, t)
			}
			r.mu.Lock()
			defer r.mu.Unlock()
			if r.lastEnd = time.Now(); err != nil {
				r.troubles = append(r.troubles, err.Error())
			}
		})
	}
}

// errRunEnded is why a flow did not begin.
var errRunEnded = errors.New("the run ended before it had begun")

// startLate starts a flow, for as long as the run lasts.
func (r *run) startLate(ctx context.Context, t scenario.Traffic) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() {
		select {
		case <-r.ending:
			cancel(errRunEnded)
		case <-ctx.Done():
		}
	}()
	err := r.keepStarting(ctx, t, r.patience) // its guest may be on its way, or an agent down
	if err != nil && ctx.Err() != nil && !strings.Contains(err.Error(), errRunEnded.Error()) {
		return fmt.Errorf("traffic %s: %w", t.Name, errRunEnded)
	}
	return err
}

// keepStarting starts a flow, again and again for that long; an agent that is to start again is awaited first.
func (r *run) keepStarting(ctx context.Context, t scenario.Traffic, patience time.Duration) error {
	err := r.startFlow(ctx, t)
	for begun := time.Now(); err != nil && clock.Sleep(ctx, 200*time.Millisecond); {
		if r.w.agentOf(t.Guest).starting() {
			begun = time.Now()
		} else if time.Since(begun) >= patience {
			break
		}
		err = r.startFlow(ctx, t)
	}
	return err
}

// serverPatience is how long a flow waits for what serves it in a guest that has its address, and in which nobody can
// be asked whether it is ready.
const serverPatience = time.Minute

// startFirst starts a flow at time 0. A guest by DHCP counts as booted when it has its address, and what serves may
// listen later.
func (r *run) startFirst(ctx context.Context, t scenario.Traffic) error {
	if g, _ := r.w.scenario.Guest(t.Guest); g.Agent != "dhcp" {
		return r.startFlow(ctx, t)
	}
	return r.keepStarting(ctx, t, serverPatience)
}

// watchSamples keeps every client's samples until the client ends.
func (r *run) watchSamples() {
	for _, c := range r.w.clients {
		go func() {
			for s := range c.Samples() {
				r.mu.Lock()
				f := r.flows[s.Flow]
				r.mu.Unlock()
				if f != nil {
					f.see(s)
				}
			}
		}()
	}
}

// see takes a sample in.
func (f *flowTrace) see(s traffic.Sample) {
	f.mu.Lock()
	defer f.mu.Unlock()
	before := f.last.Time
	f.last = s
	row := sampleRow{at: s.Time, mbps: s.Mbps, rtt: math.NaN(), gap: float64(max(s.Gap, s.Waiting)) / 1e6}
	if s.RTT != nil {
		row.rtt = *s.RTT
	}
	f.samples = append(f.samples, row)
	f.longest = max(f.longest, time.Duration(max(s.Gap, s.Waiting)))
	if n := len(f.remotes); n == 0 || !maps.Equal(f.remotes[n-1].counts, s.Remotes) {
		f.remotes = append(f.remotes, remotes{s.Time, s.Remotes})
	}
	for _, sub := range s.Subflows {
		if !sub.Established {
			continue
		}
		key := [2]string{sub.Local.Addr().String(), sub.Remote.Addr().String()}
		spans := f.subflows[key]
		if n := len(spans); n > 0 && (spans[n-1].to == before || s.Time-spans[n-1].to < int64(time.Second)) {
			spans[n-1].to = s.Time
			continue
		}
		f.subflows[key] = append(spans, span{s.Time, s.Time})
	}
}

// lookAfter has the guest's flows tell where their connections are as its migration is over: the next one may begin at
// once, and what samples saw until then tells which had moved.
func (r *run) lookAfter(m *move) {
	m.mu.Lock()
	rep := m.told()
	m.mu.Unlock()
	if rep == nil || rep.Outcome != migration.Completed {
		return
	}
	var wg sync.WaitGroup
	for _, t := range r.w.scenario.Traffic {
		if t.Guest != m.guest {
			continue
		}
		wg.Go(func() {
			if err := r.w.clients[t.Client].Look(t.Name); err != nil {
				r.tell("traffic " + t.Name + ": " + err.Error())
			}
		})
	}
	wg.Wait()
}

// stopTraffic ends every flow and keeps what it was.
func (r *run) stopTraffic() {
	r.tell("stopping traffic")
	var wg sync.WaitGroup
	for _, t := range r.w.scenario.Traffic {
		r.mu.Lock()
		started := r.flows[t.Name] != nil
		r.mu.Unlock()
		if !started {
			continue
		}
		wg.Go(func() {
			result, err := r.w.clients[t.Client].Stop(t.Name)
			r.mu.Lock()
			defer r.mu.Unlock()
			if err != nil {
				r.troubles = append(r.troubles, err.Error())
				return
			}
			r.results[t.Name] = result
		})
	}
	wg.Wait()
	r.lastBalance()
	r.links = r.linkDrops().minus(r.links)
	if err := r.w.topo.DeadLinks(); err != nil {
		r.troubles = append(r.troubles, err.Error())
	}
	if n := r.links.faults; n > 0 {
		r.tell(fmt.Sprintf("the devices of the emulated links lost %d packets: the lab did not keep up, or has a fault", n))
	}
}

// endLeases ends every tunnel that a lease keeps, and sees how long each lived.
func (r *run) endLeases() {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	for _, a := range r.w.agents {
		if a.goneForGood() { // its leases end when what it left is cleaned up
			continue
		}
		if err := a.client.EndDetours(ctx); err != nil {
			r.tell("end leases: " + err.Error())
		}
	}
	for _, m := range r.movesNow() {
		if m.id == "" {
			continue
		}
		if rep, err := r.w.agents[m.from].client.Report(ctx, m.id); err == nil && rep.Ended != 0 {
			m.set(&rep)
		}
	}
}
