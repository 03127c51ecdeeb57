// Package lab runs scenarios: a real multi-site network of namespaces on one
// machine, an agent on every host, real guests, and clients that count what they
// feel. Run makes a report.Report of it, and RunFaults tries the matrix of faults.
// docs/architecture.md says which file is of what.
package lab

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"godwit/agent/api"
	"godwit/agent/config"
	"godwit/agent/peer"
	"godwit/internal/clock"
	"godwit/lab/hostroom"
	"godwit/lab/image"
	"godwit/lab/scenario"
	"godwit/lab/topo"
	"godwit/lab/traffic"
	"godwit/lab/wan"
	"godwit/vm/qemu"
)

// world is everything that a run made.
type world struct {
	id       string
	dir      string // temporary files of the run
	out      string // where logs are kept; may be ""
	scenario *scenario.Scenario
	topo     *topo.Topo
	log      *slog.Logger
	image    config.Image
	images   map[string]config.Image  // of guests that are not tiny
	booted   map[string]time.Duration // by guest: until it was ready

	mtu       int               // of the guests' and the access networks, bytes; 0: 1500
	vlans     map[string]string // by site: how its guests are in a VLAN, see topo.Site
	oneNIC    bool              // of each host, see topo.Site
	ownClocks bool              // each host's clock can be stepped; see stepClock
	comparing bool              // see CompareVariable
	verifying bool              // the same: what guests wrote
	exact     bool              // nothing that makes a switch longer: not compared

	leave func() // ends what its making began and is still alive, such as clients; may be nil

	mu      sync.Mutex
	agents  map[string]*hostAgent      // by host
	where   map[string]string          // guest → host that runs it
	kept    map[string][]string        // guest → hosts that both may have its disks
	clients map[string]*traffic.Client // by client
	probers map[string]*traffic.Prober // by guest
	edges   *edges
}

// newID names a run: four hex digits.
func newID() string {
	var b [2]byte
	rand.Read(b[:]) //nolint:errcheck // does not fail
	return hex.EncodeToString(b[:])
}

// claim names a run, by one id of some after the other, and makes its directory, which nobody had before: everybody may
// make one there, and whose it is has all that is in it, such as what agents are told to execute.
func claim(next func() string) (id, dir string, err error) {
	for range 100 {
		id = next()
		dir = filepath.Join(os.TempDir(), "godwit-lab-"+id)
		if err = os.Mkdir(dir, 0o700); !errors.Is(err, fs.ErrExist) {
			break
		}
	}
	return id, dir, err
}

// build makes network, agents, guests and clients. On error what was made is
// still in the world: close it in any case.
func (w *world) build(ctx context.Context, tell func(string)) error {
	if err := w.needs(); err != nil {
		return err
	}
	if err := w.findImages(ctx, tell); err != nil {
		return err
	}
	tell("building the network")
	var err error
	if w.topo, err = topo.Build(ctx, w.spec()); err != nil {
		return err
	}
	tell("starting agents")
	if err := w.startAgents(ctx); err != nil {
		return err
	}
	tell("booting guests")
	if err := w.startGuests(ctx, tell); err != nil {
		return err
	}
	return w.startClients(ctx)
}

// needs says which program the scenario cannot do without and is not here, before anything
// is built.
func (w *world) needs() error {
	var programs []string
	if len(w.scenario.Guests) > 0 {
		programs = append(programs, qemu.Program)
	}
	if slices.ContainsFunc(w.scenario.Traffic, func(t scenario.Traffic) bool { return t.Kind == traffic.Iperf3 }) {
		programs = append(programs, "iperf3")
	}
	for _, p := range programs {
		if _, err := exec.LookPath(p); err != nil {
			return fmt.Errorf("%s is not on PATH; `make build` installs what is missing", p)
		}
	}
	return nil
}

// spec is the network that the scenario asks for.
func (w *world) spec() topo.Spec {
	spec := topo.Spec{ID: w.id, MTU: w.mtu}
	for _, s := range w.scenario.Sites {
		site := topo.Site{Name: s.Name, GuestV4: s.GuestV4, GuestV6: s.GuestV6, VLAN: w.vlans[s.Name], OneNIC: w.oneNIC, Hosts: s.Hosts}
		for _, u := range s.Uplinks {
			site.Uplinks = append(site.Uplinks, topo.Uplink{Name: u.Name, Carries: string(u.Carries), Link: wan.Link{
				Rate: u.Rate, Delay: u.Delay, Jitter: u.Jitter, Loss: u.Loss, Queue: int(u.Queue), MTU: u.MTU,
			}})
		}
		spec.Sites = append(spec.Sites, site)
	}
	for _, c := range w.scenario.Clients {
		spec.Clients = append(spec.Clients, topo.Client{
			Name: c.Name, At: c.At, NAT: c.NAT, Uplinks: c.Uplinks, MPTCP: c.MPTCP, AddAddrAccepted: c.AddAddrAccepted,
		})
	}
	return spec
}

// startAgents issues certificates, writes configurations and starts one agent a host.
func (w *world) startAgents(ctx context.Context) error {
	tls := filepath.Join(w.dir, "tls")
	if err := os.MkdirAll(tls, 0o700); err != nil {
		return err
	}
	now := time.Now()
	ca, err := peer.NewFleetCA(tls, now)
	if err != nil {
		return err
	}
	if err := os.Rename(filepath.Join(tls, "ca.pem"), w.fleetCA()); err != nil { // a host may be called ca
		return err
	}
	compares, err := w.compares()
	if err != nil {
		return err
	}
	hosts := w.topo.Hosts()
	var wg sync.WaitGroup
	errs := make([]error, len(hosts))
	for i, h := range hosts {
		if err := ca.Issue(h.Name, now); err != nil {
			return err
		}
		config := w.agentConfig(h, hosts, tls)
		a := &hostAgent{host: h, dir: w.hostDir(h.Name), config: config, client: api.NewClient(config.Socket()), env: compares[:len(compares):len(compares)]}
		if w.ownClocks {
			a.env = append(a.env, clock.Variable+"="+w.clockFile(h.Name))
		}
		w.agents[h.Name] = a
		wg.Go(func() { errs[i] = a.start(ctx) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

// hostDir is where a host's files are. It is named by the host's number: sockets are in
// it, whose paths must be short whatever the site and its guests are called.
func (w *world) hostDir(host string) string {
	var all []string
	for _, s := range w.scenario.Sites {
		all = append(all, s.HostNames()...)
	}
	return filepath.Join(w.dir, fmt.Sprintf("host%d", slices.Index(all, host)+1))
}

func (w *world) fleetCA() string { return filepath.Join(w.dir, "fleet.pem") }

// keptHere is how much memory of guests that left each host keeps for their return, bytes.
const keptHere = 2 << 30

func (w *world) agentConfig(h topo.Host, all []topo.Host, tls string) config.Config {
	c := config.Config{
		Host: h.Name, Site: h.Site, State: filepath.Join(w.hostDir(h.Name), "state"), Run: filepath.Join(w.hostDir(h.Name), "run"),
		TLS:   config.TLSFiles{CA: w.fleetCA(), Cert: filepath.Join(tls, h.Name+".pem"), Key: filepath.Join(tls, h.Name+".key")},
		Image: w.image, Images: w.images,
		Network: config.Network{
			Bridge: h.Bridge, LAN: h.LAN, V4: h.GuestV4, V6: h.GuestV6, Gateway4: h.GatewayV4, Gateway6: h.GatewayV6, MTU: w.mtu,
		},
		Uplinks: uplinksOf(h), KeepMemory: keptHere,
	}
	c.Network.First = firstAddress(h, all)
	if site, ok := w.scenario.Site(h.Site); ok && site.SubnetAgent != h.Name {
		c.SubnetAgent = site.SubnetAgent
	}
	for _, other := range all {
		if other.Name != h.Name {
			c.Peers = append(c.Peers, config.Neighbour{Host: other.Name, Site: other.Site, V4: other.GuestV4, V6: other.GuestV6, Uplinks: uplinksOf(other)})
		}
	}
	return c
}

// hostShare is how many addresses of a site's subnet each of its hosts hands out before
// it comes to the next one's, where there are so many; firstShared is the first of them, or, in a subnet
// of fewer than smallSubnet, which has none to spare, firstOfFew: the router has the one before.
const (
	hostShare   = 40
	firstShared = 10
	firstOfFew  = 2
	smallSubnet = 64
)

// firstAddress keeps hosts of one site apart, as docs/agent.md asks of everybody.
func firstAddress(h topo.Host, all []topo.Host) uint32 {
	before, hosts := 0, 0
	for _, other := range all {
		if other.Site != h.Site {
			continue
		}
		if other.Name == h.Name {
			before = hosts
		}
		hosts++
	}
	room := 1 << 16
	for _, p := range []netip.Prefix{h.GuestV4, h.GuestV6} {
		if p.IsValid() {
			room = min(room, 1<<min(p.Addr().BitLen()-p.Bits(), 16))
		}
	}
	first := firstShared
	if room < smallSubnet {
		first = firstOfFew
	}
	room = max(room-first-1, 1) // the last one is everybody's
	share := max(min(hostShare, room/max(hosts, 1)), 1)
	return uint32(first + before*share%room) //nolint:gosec // below 2^16
}

func uplinksOf(h topo.Host) []config.Uplink {
	var out []config.Uplink
	for _, u := range h.Uplinks {
		out = append(out, config.Uplink{Name: u.Name, Device: u.Device, Address: u.V4, Carries: u.Carries, Rate: u.Rate})
	}
	return out
}

// bootLimit bounds a guest's boot and the start of its workloads.
const bootLimit = 4 * time.Minute

// startGuests boots them, all at once but for the cores that boots need.
func (w *world) startGuests(ctx context.Context, tell func(string)) error {
	var wg sync.WaitGroup
	errs := make([]error, len(w.scenario.Guests))
	slots := make(chan struct{}, 2)
	for i, g := range w.scenario.Guests {
		host := w.scenario.Hosts(g.Site)[0]
		w.where[g.Name] = host
		wg.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			ctx, cancel := context.WithTimeout(ctx, bootLimit)
			defer cancel()
			d := w.describe(i, g)
			if errs[i] = w.makeDisks(&d, g, host); errs[i] != nil {
				return
			}
			began := time.Now()
			_, err := w.agents[host].client.StartGuest(ctx, d)
			if errs[i] = booted(g.Name, err); err == nil {
				w.ready(g, time.Since(began), tell)
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// booted is what came of a guest's start. Its agent answers once the guest is up: where none came in time, the guest is not.
func booted(guest string, err error) error {
	if errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("guest %s was not up within %v", guest, bootLimit)
	}
	return err
}

// ready notes how long a guest took to boot and to start what it is to run.
func (w *world) ready(g scenario.Guest, took time.Duration, tell func(string)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.booted == nil {
		w.booted = map[string]time.Duration{}
	}
	w.booted[g.Name] = took
	if g.Image != image.Tiny {
		tell(fmt.Sprintf("%s (%s) is ready after %.1f s", g.Name, g.Image, took.Seconds()))
	}
}

// describe is guest number i of the scenario, for its first agent.
func (w *world) describe(i int, g scenario.Guest) config.Description {
	name, _ := imageOf(g)
	d := config.Description{Name: g.Name, Memory: g.Memory, VCPUs: g.VCPUs, Image: name, Agent: g.Agent, Run: g.Run, Network: g.Network}
	for n := range 2 {
		d.NICs = append(d.NICs, config.NIC{MAC: fmt.Sprintf("52:54:00:%02x:%02x:%02x", (i+1)>>8, byte(i+1), 0x0a+n)})
	}
	return d
}

func (w *world) startClients(ctx context.Context) error {
	for _, c := range w.scenario.Clients {
		started, err := traffic.StartClient(ctx, w.topo.Client(c.Name).Namespace)
		if err != nil {
			return fmt.Errorf("client %s: %w", c.Name, err)
		}
		w.clients[c.Name] = started
	}
	return nil
}

// agentOf is the agent of the host that runs the guest, as far as is known.
func (w *world) agentOf(guest string) *hostAgent {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.agents[w.where[guest]]
}

func (w *world) moved(guest, host string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.where[guest] = host
}

// close takes everything down and returns what is left of it.
func (w *world) close(stopReaper func()) []string {
	for _, p := range w.probers {
		p.Close()
	}
	for _, c := range w.clients {
		c.Close()
	}
	if w.leave != nil {
		w.leave()
	}
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	var wg sync.WaitGroup
	for _, a := range w.agents {
		wg.Go(func() { a.stop(ctx, w.log) })
	}
	wg.Wait()
	if w.edges != nil {
		w.edges.close()
	}
	leftovers := w.agentLeftovers()
	if w.topo != nil {
		if err := w.topo.Close(); err != nil {
			leftovers = append(leftovers, "network: "+err.Error())
		}
	}
	w.keepLogs()
	if err := hostroom.Free(w.id, w.dir); err != nil {
		leftovers = append(leftovers, "files: "+err.Error())
	}
	if err := os.RemoveAll(w.dir); err != nil {
		leftovers = append(leftovers, "files: "+err.Error())
	}
	stopReaper()
	return append(leftovers, topo.Leftovers(w.id)...)
}
