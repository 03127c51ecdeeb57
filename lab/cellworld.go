package lab

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"godwit/agent/config"
	"godwit/internal/clock"
	"godwit/lab/hostroom"
	"godwit/lab/image"
	"godwit/lab/scenario"
	"godwit/lab/topo"
	"godwit/lab/traffic"
	"godwit/vm"
	"godwit/vm/qemu"
)

// cellScenario is the world of the matrix: a guest with a little of everything, so that
// each phase has something to do, and two ways between the sites.
const cellScenario = `
name: faults
sites:
  - {name: montreal, guest_net: {v4: 10.1.1.0/24}, uplinks: [{name: public, rate: 300mbit, delay: 5ms}, {name: private, rate: 300mbit, delay: 8ms}]}
  - {name: sanjose, guest_net: {v4: 10.2.1.0/24}, uplinks: [{name: public, rate: 300mbit, delay: 5ms}, {name: private, rate: 300mbit, delay: 8ms}]}
clients:
  - {name: phone, at: internet}
guests:
  - {name: web, site: montreal, memory: 160MiB, disk: 48MiB, run: ["disk write=16MiB", "dirty size=24MiB rate=2MiB/s"]}
`

const (
	cellGuest  = "web"
	cellClient = "phone"
	cellUplink = "public" // the one that carries guests and the tunnel

	cellLate = 30_000_000 // how fast memory comes in mode postcopy, bit/s: some 30 MB follow the guest then, for ten seconds
	cellHeld = 6_000_000  // from the handover until a fault that is to come in settle, before which the last page may be there else
)

// cellWorld is a world in which cell after cell is tried, for as long as each left it
// clean. Each host has a state directory of its own size and a clock of its own.
type cellWorld struct {
	*world
	stopReaper func()
	mode       string // of migrations; "": auto
	ended      bool   // the guest did, in the last cell: its disks stay where it was

	mu      sync.Mutex
	samples map[string]traffic.Sample // the last, by flow
}

// watchSamples keeps the last sample of each flow, until the client ends.
func (w *cellWorld) watchSamples() {
	for s := range w.clients[cellClient].Samples() {
		w.mu.Lock()
		w.samples[s.Flow] = s
		w.mu.Unlock()
	}
}

func (w *cellWorld) sample(flow string) (traffic.Sample, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	s, ok := w.samples[flow]
	return s, ok
}

// newCellWorld builds it. On error nothing is left but what the error says.
func newCellWorld(ctx context.Context, log *slog.Logger) (*cellWorld, error) {
	s, err := scenario.Parse("faults", []byte(cellScenario))
	if err != nil {
		return nil, err
	}
	id, dir, err := claim(newID)
	if err != nil {
		return nil, err
	}
	w := &cellWorld{samples: map[string]traffic.Sample{}, world: &world{
		id: id, dir: dir, scenario: s, log: log,
		agents: map[string]*hostAgent{}, where: map[string]string{},
		clients: map[string]*traffic.Client{}, probers: map[string]*traffic.Prober{},
	}}
	if w.stopReaper, err = guard(id, dir); err != nil {
		return nil, errors.Join(err, os.Remove(dir))
	}
	if err := w.make(ctx); err != nil {
		return nil, fmt.Errorf("%w%s", err, leftWords(w.end()))
	}
	return w, nil
}

func (w *cellWorld) end() []string {
	left := w.close(w.stopReaper)
	if w.ended {
		left = slices.DeleteFunc(left, func(what string) bool { return strings.Contains(what, ": disk "+cellGuest+"-") })
	}
	return left
}

func (w *cellWorld) make(ctx context.Context) error {
	kernel, initrd, err := image.Find()
	if err != nil {
		return err
	}
	w.image = config.Image{Kernel: kernel, Initrd: initrd, Cmdline: image.Cmdline}
	if w.topo, err = topo.Build(ctx, w.spec()); err != nil {
		return err
	}
	w.ownClocks, w.exact = true, true
	for _, h := range w.topo.Hosts() {
		if err := hostroom.MountState(filepath.Join(w.hostDir(h.Name), "state")); err != nil {
			return err
		}
	}
	if err := w.startAgents(ctx); err != nil {
		return err
	}
	if err := w.startClients(ctx); err != nil {
		return err
	}
	go w.watchSamples() // it ends with the client
	return nil
}

// clockFile is where the difference of a host's clock is.
func (w *world) clockFile(host string) string { return filepath.Join(w.hostDir(host), "clock") }

// stepClock makes a host's clock differ from the machine's by d.
func (w *world) stepClock(host string, d time.Duration) error {
	return clock.Step(w.clockFile(host), d)
}

// ready makes sure that the guest runs somewhere, and returns where.
func (w *cellWorld) ready(ctx context.Context) (host string, err error) {
	runs := w.runs(ctx)
	switch len(runs) {
	case 1:
		w.moved(cellGuest, runs[0])
		return runs[0], nil
	case 0:
		return w.freshGuest(ctx)
	}
	return "", fmt.Errorf("the guest runs on %v", runs)
}

// freshGuest starts the guest anew. The disks of the one before, which was ended, go.
func (w *cellWorld) freshGuest(ctx context.Context) (string, error) {
	for name := range w.agents {
		if err := os.RemoveAll(w.disksOf(name)); err != nil {
			return "", err
		}
	}
	g := w.scenario.Guests[0]
	host := w.scenario.Hosts(g.Site)[0]
	ctx, cancel := context.WithTimeout(ctx, 3*time.Minute)
	defer cancel()
	d := w.describe(0, g)
	if err := w.makeDisks(&d, g, host); err != nil {
		return "", err
	}
	if _, err := w.agents[host].client.StartGuest(ctx, d); err != nil {
		return "", err
	}
	w.moved(cellGuest, host)
	return host, nil
}

// runs are the hosts on which a QEMU says that it runs the guest.
func (w *cellWorld) runs(ctx context.Context) []string {
	var out []string
	for name, a := range w.agents {
		for dir := range a.qemus() {
			if status, _ := lookOnce(ctx, dir); status == vm.Running {
				out = append(out, name)
			}
		}
	}
	return out
}

// qemus are the runtime directories of a host's living QEMUs, with their processes.
func (h *hostAgent) qemus() map[string]int {
	found, err := qemu.Living(filepath.Join(h.config.Run, "guests"))
	if err != nil {
		return nil
	}
	return found
}

// lookOnce asks a QEMU itself.
func lookOnce(ctx context.Context, dir string) (vm.Status, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	l, err := qemu.Look(ctx, dir)
	if err != nil {
		return "", err
	}
	defer l.Close()
	return l.Status(ctx)
}

// runsAgent says whether the host's agent lives.
func (h *hostAgent) runsAgent() bool {
	h.mu.Lock()
	done := h.done
	h.mu.Unlock()
	select {
	case <-done:
		return false
	default:
		return true
	}
}

// agentPID is the agent's process.
func (h *hostAgent) agentPID() (int, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.cmd == nil || h.cmd.Process == nil {
		return 0, errors.New("agent " + h.host.Name + " does not run")
	}
	return h.cmd.Process.Pid, nil
}
