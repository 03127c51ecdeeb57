package lab

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"godwit/agent/api"
	"godwit/agent/config"
	"godwit/agent/record"
	"godwit/internal/need"
	"godwit/lab/image"
	"godwit/lab/topo"
	"godwit/lab/traffic"
	"godwit/migration"
	"godwit/netstate/netns"
)

// A trial is a built world in which a test asks for migrations, one after the other,
// and looks at what each left.
type trial struct {
	*testing.T
	w       *world
	lines   *caseLines
	from    string // whose agent leads migrations; "": montreal's
	damages bool   // the test damages memory itself

	ticker string // client that the flow of ticks is to

	mu    sync.Mutex
	alive bool // every connection of the flow
	worst time.Duration

	first   map[string][]netip.Addr   // of each guest, as flows began
	samples map[string]traffic.Sample // by flow, the last
}

// caseLines are the errors that were said, for the log at the end.
type caseLines struct {
	mu    sync.Mutex
	lines []string
}

func (c *caseLines) add(format string, a ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lines = append(c.lines, fmt.Sprintf(format, a...))
}

// newTrial builds the network and the agents of a scenario, with their
// configurations changed by change, then its guests and clients.
func newTrial(t *testing.T, text string, change func(host string, c *config.Config)) *trial {
	t.Helper()
	return newTrialIn(t, &world{}, text, change)
}

// newTrialIn is newTrial in a world that has something of its own.
func newTrialIn(t *testing.T, w *world, text string, change func(host string, c *config.Config)) *trial {
	t.Helper()
	need.Program(t, "nft")
	p := &trial{T: t, w: w, lines: &caseLines{}}
	w.prepare(t, text, p.showLogs)
	ctx := t.Context()
	kernel, initrd, err := image.Find()
	p.must(err)
	w.image = config.Image{Kernel: kernel, Initrd: initrd, Cmdline: image.Cmdline}
	p.must(os.MkdirAll(w.dir, 0o700))
	w.topo, err = topo.Build(ctx, w.spec())
	p.must(err)
	p.must(w.startAgents(ctx))
	for host, a := range w.agents {
		p.restart(host, func(c *config.Config) { change(a.host.Name, c) })
	}
	p.must(w.startGuests(ctx, func(string) {}))
	p.must(w.startClients(ctx))
	return p
}

func (p *trial) must(err error) {
	p.Helper()
	if err != nil {
		p.Fatal(err)
	}
}

// restart kills a host's agent and starts it with a changed configuration.
func (p *trial) restart(host string, change func(*config.Config)) {
	p.Helper()
	a := p.w.agents[host]
	p.must(a.kill())
	if change != nil {
		change(&a.config)
	}
	p.must(a.start(p.Context()))
}

// ticks starts the flow that every case must leave alone.
func (p *trial) ticks(client, guest string) {
	p.Helper()
	info, err := p.guest("montreal", guest)
	p.must(err)
	c := p.w.clients[client]
	p.must(c.Start(traffic.Flow{Name: "ticks", Kind: traffic.Ticks, Target: info.Addresses[0].Prefix.Addr(), MPTCP: true}))
	p.alive, p.ticker = true, client
	go p.feels(c.Samples())
}

// feels notes what a flow was, until its client ends, and the flow with it.
func (p *trial) feels(samples <-chan traffic.Sample) {
	for s := range samples {
		p.mu.Lock()
		p.worst = max(p.worst, time.Duration(max(s.Gap, s.Waiting)))
		p.alive = s.Alive == s.Connections && s.Connections > 0
		p.mu.Unlock()
	}
	p.mu.Lock()
	p.alive = false
	p.mu.Unlock()
}

// ticksWhole ends the flow that ticks began: it lives, and each record came once, as it was sent.
func (p *trial) ticksWhole() {
	p.Helper()
	r, err := p.w.clients[p.ticker].Stop("ticks")
	p.must(err)
	if !r.Survived || r.Records == 0 || r.Lost+r.Repeated+r.Corrupt != 0 {
		p.Errorf("ticks: survived %v, %d records, lost %d, repeated %d, corrupt %d\n%s", r.Survived, r.Records, r.Lost, r.Repeated, r.Corrupt, p.missing(&r))
	}
}

// TestGapOfAClientThatEnded: nobody takes its silence for a flow without waits.
func TestGapOfAClientThatEnded(t *testing.T) {
	p := &trial{T: t, alive: true}
	samples := make(chan traffic.Sample, 1)
	samples <- traffic.Sample{Connections: 1, Alive: 1}
	close(samples)
	p.feels(samples)
	if gap := p.gap(); gap < time.Hour {
		t.Errorf("its flow waited for %v", gap)
	}
}

// gap is the longest wait of the flow since it was last asked.
func (p *trial) gap() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	worst := p.worst
	p.worst = 0
	if !p.alive {
		return time.Hour
	}
	return worst
}

func (p *trial) guest(host, name string) (api.GuestInfo, error) {
	ctx, cancel := context.WithTimeout(p.Context(), 5*time.Second)
	defer cancel()
	info, err := p.w.agents[host].client.Host(ctx)
	if err != nil {
		return api.GuestInfo{}, err
	}
	for _, g := range info.Guests {
		if g.Name == name {
			return g, nil
		}
	}
	return api.GuestInfo{}, fmt.Errorf("no guest %s on %s", name, host)
}

// leads is the host that migrations are asked of.
func (p *trial) leads() string {
	if p.from == "" {
		return "montreal"
	}
	return p.from
}

// leader is that host's agent.
func (p *trial) leader() *api.Client { return p.w.agents[p.leads()].client }

// began asks the leading agent for a migration that must begin.
func (p *trial) began(req migration.Request) string {
	p.Helper()
	id, err := p.leader().Migrate(p.Context(), req)
	p.must(err)
	return id
}

// reaches waits until a migration has an event or phase of that name.
func (p *trial) reaches(id, name string) {
	p.Helper()
	after, limit := 0, time.Now().Add(30*time.Second)
	for time.Now().Before(limit) {
		part, err := p.leader().Events(p.Context(), id, after)
		p.must(err)
		for _, e := range part.Events {
			after = e.N
			if string(e.Phase) == name || string(e.Name) == name {
				return
			}
		}
		if part.Over {
			rep, _ := p.leader().Report(p.Context(), id)
			p.Fatalf("migration %s ended before %s: %s, %v", id, name, rep.Outcome, rep.Problem)
		}
	}
	p.Fatalf("migration %s: no %s in 30 s", id, name)
}

// did waits until a migration has done a step.
func (p *trial) did(id, step string) {
	p.Helper()
	for limit := time.Now().Add(60 * time.Second); time.Now().Before(limit); time.Sleep(5 * time.Millisecond) {
		rep, err := p.leader().Report(p.Context(), id)
		p.must(err)
		if slices.ContainsFunc(rep.Critical, func(s record.Step) bool { return s.Name == step }) {
			return
		}
		if rep.Ended != 0 {
			p.Fatalf("migration %s ended before %q: %s, %v", id, step, rep.Outcome, rep.Problem)
		}
	}
	p.Fatalf("migration %s: no %q in a minute", id, step)
}

// ends waits for the outcome of a migration.
func (p *trial) ends(id string, limit time.Duration) record.Report {
	p.Helper()
	return p.endsOn(p.leads(), id, limit)
}

// endsOn is ends for a migration that leaves another host.
func (p *trial) endsOn(host, id string, limit time.Duration) record.Report {
	p.Helper()
	until := time.Now().Add(limit)
	for {
		rep, err := p.w.agents[host].client.Report(p.Context(), id)
		if err == nil && rep.Ended != 0 {
			p.took(&rep)
			p.arrived(&rep)
			return rep
		}
		if time.Now().After(until) {
			p.Fatalf("migration %s: no outcome in %v (%+v, %v)", id, limit, rep.Phases, err)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// took notes how long each phase of a migration was.
func (p *trial) took(rep *record.Report) {
	p.Helper()
	var out strings.Builder
	for _, span := range rep.Phases {
		fmt.Fprintf(&out, ", %s %.1f s", span.Name, time.Duration(max(span.End, span.Start)-span.Start).Seconds())
	}
	p.Logf("migration %s of %s from %s to %s: %s%s", rep.ID, rep.Guest, rep.From, rep.To, rep.Outcome, out.String())
}

// arrived checks the memory of a guest that has moved, by both ends' agents, and by what the guest wrote.
func (p *trial) arrived(rep *record.Report) {
	p.Helper()
	if err := p.w.compared(rep); err != nil && !p.damages {
		p.Error(err)
	}
	if g, _ := p.w.scenario.Guest(rep.Guest); rep.Outcome == migration.Completed && writes(g) {
		p.patterns(rep.To, g.Name)
	}
}

// outcome asks for a migration that must not come to anything, and returns what was
// said: by the request, or as the outcome.
func (p *trial) outcome(req migration.Request) (migration.Outcome, error) {
	p.Helper()
	id, err := p.leader().Migrate(p.Context(), req)
	if err != nil {
		return migration.Refused, err
	}
	rep := p.ends(id, 25*time.Second)
	if rep.Problem == nil {
		return rep.Outcome, nil
	}
	return rep.Outcome, rep.Problem
}

// said checks an error: a problem of that code, one line that has all words.
func (p *trial) said(name string, err error, code migration.Code, words ...string) {
	p.Helper()
	var problem *migration.Problem
	if !errors.As(err, &problem) {
		p.Errorf("%s: %v is not a problem", name, err)
		return
	}
	p.lines.add("%s\n\t[%s] %s", name, problem.Code, problem.Text)
	if problem.Code != code {
		p.Errorf("%s: code %s, want %s", name, problem.Code, code)
	}
	for _, w := range words {
		if !strings.Contains(problem.Text, w) {
			p.Errorf("%s: %q: want %q in it", name, problem.Text, w)
		}
	}
	if strings.ContainsAny(problem.Text, "\n\r") || strings.Contains(problem.Text, "%!") {
		p.Errorf("%s: %q: want one line of words", name, problem.Text)
	}
}

// bare starts a QEMU without a system in montreal, as somebody else would, and has
// it adopted without a channel: cards NICs, and more arguments.
func (p *trial) bare(name string, number, cards int, more ...string) {
	p.Helper()
	a := p.w.agents["montreal"]
	qmp := filepath.Join(p.w.dir, name+".qmp")
	args := append([]string{"-name", "guest=" + name, "-nodefaults", "-display", "none", "-M", "q35", "-accel", "tcg", "-m", "32",
		"-qmp", "unix:" + qmp + ",server=on,wait=off"}, more...)
	d := config.Description{Name: name, Memory: 32 << 20, QMP: qmp,
		Start: append([]string{"qemu-system-x86_64", "-S", "-incoming", "defer", "-nodefaults", "-display", "none", "-M", "q35", "-accel", "tcg",
			"-pidfile", "{dir}/pid", "-qmp", "unix:{qmp},server=on,wait=off", "-m", "{memory}"}, more...)}
	d.Addresses = []migration.Address{{Prefix: netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 1, 1, byte(200 + number)}), 24)}}
	p.must(netns.Do(a.host.Namespace, func() error {
		for i := range cards {
			mac, tap := fmt.Sprintf("52:54:00:00:%02x:%02x", 200+number, i), fmt.Sprintf("t-%s%d", name, i)
			d.NICs = append(d.NICs, config.NIC{MAC: mac, Tap: tap})
			bridge, err := netlink.LinkByName(a.host.Bridge)
			if err != nil {
				return err
			}
			link := &netlink.Tuntap{LinkAttrs: netlink.LinkAttrs{Name: tap, MasterIndex: bridge.Attrs().Index}, Mode: netlink.TUNTAP_MODE_TAP}
			if err := errors.Join(netlink.LinkAdd(link), netlink.LinkSetMaster(link, bridge)); err != nil {
				return err
			}
			args = append(args, "-netdev", fmt.Sprintf("tap,id=n%d,ifname=%s,script=no,downscript=no", i, tap),
				"-device", fmt.Sprintf("virtio-net-pci,netdev=n%d,mac=%s,romfile=", i, mac))
			d.Start = append(d.Start, "-netdev", fmt.Sprintf("tap,id=n%d,fd={fd%d}", i, i),
				"-device", fmt.Sprintf("virtio-net-pci,netdev=n%d,mac=%s,romfile=", i, mac))
		}
		return nil
	}))
	cmd := exec.Command("qemu-system-x86_64", args...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	p.must(netns.Start(a.host.Namespace, cmd))
	ended := make(chan struct{})
	go func() { cmd.Wait(); close(ended) }() //nolint:errcheck // the agent ends it
	p.Cleanup(func() { cmd.Process.Kill(); <-ended })
	for i := 0; ; i++ {
		_, err := os.Stat(qmp)
		if err == nil {
			break
		}
		if i > 200 {
			p.Fatalf("guest %s: %v", name, err)
		}
		time.Sleep(20 * time.Millisecond)
	}
	_, err := a.client.StartGuest(p.Context(), d)
	p.must(err)
}

// nft changes what the internet lets pass.
func (p *trial) nft(rules string) {
	p.Helper()
	cmd := exec.Command("nft", rules)
	var said strings.Builder
	cmd.Stderr = &said
	p.must(netns.Start(p.w.topo.Core(), cmd))
	if err := cmd.Wait(); err != nil {
		p.Fatalf("nft %s: %v: %s", rules, err, said.String())
	}
}
