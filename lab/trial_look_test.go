package lab

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/google/go-cmp/cmp"

	"godwit/lab/traffic"
	"godwit/lab/wan"
	"godwit/netstate"
	"godwit/netstate/dump"
	"godwit/netstate/netns"
	"godwit/vm/guest"
)

// mostGap is what a client may feel of a migration that comes to nothing.
const mostGap = time.Second

// untouched checks that all hosts are as before within limit, that the guest runs
// in montreal and is free, and that its client felt nothing.
func (p *trial) untouched(name, guest string, before map[string][]string, limit time.Duration) {
	p.Helper()
	p.untouchedBy(name, before, limit)
	g, err := p.guest("montreal", guest)
	if err != nil || g.Status != "running" || g.Migration != "" {
		p.Errorf("%s: guest %s: %+v, %v: want it running, and free", name, guest, g, err)
	}
	if gap := p.gap(); gap > mostGap {
		p.Errorf("%s: the client waited for %v", name, gap)
	}
}

// untouchedBy checks that all hosts are as before within limit.
func (p *trial) untouchedBy(name string, before map[string][]string, limit time.Duration) {
	p.Helper()
	until := time.Now().Add(limit)
	for {
		now := p.inventory()
		diff := cmp.Diff(before, now)
		if diff == "" {
			break
		}
		if time.Now().After(until) {
			p.Errorf("%s: the hosts are not as before (-before +now):\n%s", name, diff)
			break
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// inventory is all that agents could leave on the hosts, by host.
func (p *trial) inventory() map[string][]string {
	p.Helper()
	out := map[string][]string{}
	for host, a := range p.w.agents {
		ns := a.host.Namespace
		var have []string
		p.must(netns.Do(ns, func() error {
			found, err := netstate.Found()
			if err != nil {
				return err
			}
			for guest := range found.States {
				have = append(have, "network state of guest "+guest)
			}
			have = append(have, found.Stray...)
			links, err := dump.Links()
			for _, l := range links {
				have = append(have, "device "+l.Attrs().Name)
			}
			return err
		}))
		for _, pid := range netns.Processes(ns) {
			data, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
			if words := strings.Split(string(data), "\x00"); err == nil && len(words) > 3 {
				have = append(have, "process "+strings.Join(words[:3], " "))
			}
		}
		for _, dir := range []string{filepath.Join(a.config.State, "journal"), filepath.Join(a.config.Run, "guests"), filepath.Join(a.config.Run, "tunnels")} {
			entries, err := os.ReadDir(dir)
			if err != nil {
				continue
			}
			for _, e := range entries {
				have = append(have, "file "+filepath.Join(filepath.Base(dir), e.Name()))
			}
		}
		slices.Sort(have)
		out[host] = have
	}
	return out
}

// missing says when what of a flow is missing, by the clock of the agents' logs, which datagrams the
// client itself did not send, when its connections waited longest, and what the links dropped by now.
func (p *trial) missing(r *traffic.Result) string {
	p.Helper()
	var out strings.Builder
	at := func(ns int64) string {
		if ns == 0 {
			return "(not known)"
		}
		return fmt.Sprintf("%s (%.3f s)", time.Unix(0, ns).UTC().Format("15:04:05.000"), time.Duration(ns-r.Start).Seconds())
	}
	fmt.Fprintf(&out, "%s began at %s, and ended at %s\n", r.Flow.Name, at(r.Start), at(r.End))
	for _, h := range r.Holes {
		fmt.Fprintf(&out, "%d of datagrams %d to %d lost, sent between %s and %s\n", h.Lost, h.From, h.To-1, at(h.Since), at(h.Until))
	}
	if r.SendError != "" {
		fmt.Fprintln(&out, "not sent:", r.SendError)
	}
	for _, c := range r.Connections {
		if len(c.Waits) > 0 {
			longest := slices.MaxFunc(c.Waits, func(a, b traffic.Wait) int { return int(a.Length - b.Length) })
			fmt.Fprintf(&out, "waited for %v from %s\n", time.Duration(longest.Length).Round(time.Millisecond), at(longest.From))
		}
	}
	links := p.w.topo.LinkCounters()
	for _, key := range slices.Sorted(maps.Keys(links)) {
		for i, f := range []wan.Flow{links[key].AB, links[key].BA} {
			if f.Drops() > 0 {
				fmt.Fprintf(&out, "link %s dropped on the way %s the site: queue %d, loss %d, cut %d, device %d\n",
					key, []string{"from", "to"}[i], f.QueueDrop, f.LossDrop, f.CutDrop, f.DeviceDrop)
			}
		}
	}
	return out.String()
}

// keptByGuests says what the guests' kernels took in of datagrams, and what they dropped (MemErrors, RcvbufErrors): a
// guest that is slow reads them later than there is room for.
func (p *trial) keptByGuests() string {
	p.Helper()
	var out strings.Builder
	look := guest.Exec{Command: "grep Udp: /proc/net/snmp; grep Udp6 /proc/net/snmp6", TimeoutMS: 8000}
	for host, a := range p.w.agents {
		for _, g := range p.w.scenario.Guests {
			var said guest.Executed
			if err := a.client.CallGuest(p.Context(), g.Name, "exec", look, &said); err == nil {
				fmt.Fprintf(&out, "datagrams in %s on %s:\n%s", g.Name, host, said.Stdout)
			}
		}
	}
	return out.String()
}

// sockets says how far flows have come, what every client has of sockets, and what the hosts lead where.
func (p *trial) sockets(flows []string, before map[string]int64) string {
	p.Helper()
	var out strings.Builder
	for _, name := range flows {
		s := p.latest(name)
		fmt.Fprintf(&out, "%s: %d of %d live, %d records, %d of them before\n", name, s.Alive, s.Connections, s.Records, before[name])
	}
	for _, c := range p.w.scenario.Clients {
		fmt.Fprintf(&out, "%s:\n%s", c.Name, p.in(p.w.topo.Client(c.Name).Namespace, "ss", "-tnieH"))
	}
	for _, a := range p.w.agents {
		for _, args := range []string{"rule", "-6 rule", "route show table all", "-6 route show table all", "-s link", "neigh"} {
			fmt.Fprintf(&out, "%s: ip %s\n%s", a.host.Name, args, p.in(a.host.Namespace, "ip", strings.Fields(args)...))
		}
	}
	return out.String()
}

// showLogs is called when a trial has failed, before it is taken down.
func (p *trial) showLogs() {
	p.showQEMUs()
	for host, a := range p.w.agents {
		data, err := os.ReadFile(a.logPath())
		if err == nil {
			p.Logf("agent %s:\n%s", host, data[max(0, len(data)-12000):])
		}
		kept, _ := filepath.Glob(filepath.Join(a.config.State, "logs", "*"))
		alive, _ := filepath.Glob(filepath.Join(a.config.Run, "guests", "*", "*.log"))
		for _, path := range append(kept, alive...) { // what QEMU and a guest's console said
			if data, err := os.ReadFile(path); err == nil && len(data) > 0 {
				p.Logf("%s, %s:\n%q", host, path, data[max(0, len(data)-3000):])
			}
		}
	}
}
