package agent

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"godwit/agent/agenttest"
	"godwit/agent/care"
	"godwit/agent/config"
	"godwit/agent/detour"
	"godwit/agent/ends"
	"godwit/agent/guests"
	"godwit/agent/nameserver/nametest"
	"godwit/agent/peer"
	"godwit/agent/record"
	"godwit/agent/statefile"
	"godwit/internal/clock"
	"godwit/migration"
	"godwit/netstate"
	"godwit/netstate/tunnel"
	"godwit/vm/guest"
)

// Tests of agents that were killed between two things that belong together, as the next agent finds them.

// TestTakenBackHoldsAfterARestart: an agent that ended before it wrote down by which right the guest is here leaves
// that to the next: a later migration would else hand over the right that was taken back.
func TestTakenBackHoldsAfterARestart(t *testing.T) {
	a := startedAgain(t)
	g, _ := haltedGuest(t, a, "web")
	becomes(g, goodHeld(a.config.Run))
	g.Remember(func(h *care.Held) { h.Epoch = 1 })
	if err := a.guests.Save(g); err != nil {
		t.Fatal(err)
	}
	state, _, err := sourceDoing(t, migration.Release).Step(migration.Input{Kind: migration.TakeBack, Problem: &migration.Problem{Code: migration.CodeAsked, Text: "taken back"}})
	if err != nil {
		t.Fatal(err)
	}
	j := journalled("m-00000001", "berlin", state) // which is not configured any more
	j.Plan.Network = "tunnel"
	journalOf(t, a, "m-00000001", j)
	a.resumeMigrations(a.ctx, nil)
	a.actors.Wait()
	if kept := onDisk(t, a).Epoch; g.Held().Epoch != state.Epoch || kept != state.Epoch {
		t.Errorf("it is here by epoch %d, %d on the disk; taken back: %d", g.Held().Epoch, kept, state.Epoch)
	}
}

// TestHalfStarted: of a guest whose agent is killed as it starts it nothing is left when the next has started.
func TestHalfStarted(t *testing.T) {
	a := between(t)
	h, ended := starving(t, a)
	if err := a.guests.Begin(guests.New(h, nil)); err != nil {
		t.Fatal(err)
	}
	lost := a.readopt(t.Context())
	select {
	case <-ended:
	case <-time.After(20 * time.Second):
		t.Error("its QEMU lives")
	}
	held, errs := a.guests.Remembered()
	left, err := os.ReadDir(filepath.Join(a.config.Run, "guests"))
	if len(lost)+len(held)+len(errs)+len(left)+len(a.guests.All()) > 0 || err != nil {
		t.Errorf("lost %v; remembered %v, %v; left %v, %v; under care %v", lost, held, errs, left, err, a.guests.All())
	}
	if err := a.guests.NameFree("web"); err != nil {
		t.Error(err)
	}
}

// TestStartIsWrittenDown: no guest's QEMU is started that a later agent would not know of, and one that does not start
// is not remembered.
func TestStartIsWrittenDown(t *testing.T) {
	image := filepath.Join(t.TempDir(), "image")
	if err := os.WriteFile(image, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	inNamespace(t, func() error {
		t.Setenv("PATH", t.TempDir()) // without QEMU
		for dir, words := range map[string]string{"": "executable file not found", image: "not a directory"} {
			a := bareAgent(t, &config.Config{Host: "rome", Image: config.Image{Kernel: image, Initrd: image}, Network: config.Network{MTU: 1500}})
			if a.ctx = t.Context(); dir != "" { // in which nothing can be written
				a.guests = guests.In(dir)
			}
			_, err := a.startGuest(t.Context(), goodPreparation().Description)
			refusedBy(t, "without QEMU", err, words)
			if held, errs := a.guests.Remembered(); len(held) > 0 || dir == "" && len(errs) > 0 {
				t.Errorf("remembered: %v, %v", held, errs)
			}
		}
		return nil
	})
}

// TestStartBesideAQEMU: what a QEMU that is not under care is reached by is not taken from it by who starts a guest of
// its name.
func TestStartBesideAQEMU(t *testing.T) {
	a := bareAgent(t, &config.Config{Host: "rome"})
	dir := a.guestDir("web", "1")
	livesIn(t, dir)
	_, err := a.startGuest(t.Context(), config.Description{Name: "web", Memory: 32 << 20})
	agenttest.Refused(t, "it may run the guest", err, migration.CodeBusy, "runs in "+dir)
	if _, err := os.Stat(filepath.Join(dir, "pid")); err != nil {
		t.Error(err)
	}
}

// TestTapOfNobodysGuest: a tap that a QEMU has which nobody knows of, of either of its NICs, does not bar guests from
// the host.
func TestTapOfNobodysGuest(t *testing.T) {
	a := bareAgent(t, &config.Config{Host: "rome"})
	inNamespace(t, func() error {
		for number, nic := range map[int]int{1: 0, 2: 1} {
			if err := exec.Command("ip", "tuntap", "add", guests.TapName(number, nic), "mode", "tap").Run(); err != nil {
				return err
			}
		}
		for _, name := range []string{"web", "db"} {
			g := guests.New(care.Held{Description: config.Description{Name: name, NICs: []config.NIC{{}}}}, nil)
			if err := a.guests.Expect(g); err != nil {
				return err
			}
			if g.Held().Number <= 2 {
				t.Errorf("guest %s gets the tap of another, as number %d", name, g.Held().Number)
			}
		}
		return nil
	})
}

// TestArrivalThatWasNotWrittenDown: what an agent has had the kernel lead to a guest that was coming, and was killed
// before the disk had it, goes with the rest that is undone.
func TestArrivalThatWasNotWrittenDown(t *testing.T) {
	hostWithTunnels(t, func(ctx context.Context, a *Agent) error {
		d, _, err := visitsBy(ctx, t, a)
		if err != nil {
			return err
		}
		displace(a, d.ID)
		plan := migration.Plan{ID: d.ID, Guest: "web", From: "paris", To: "rome", Epoch: 2}
		m := &incoming{a: a, plan: plan, rec: record.New("rome", plan, time.Now()), work: &destinationWork{found: true}}
		if err := m.sendBack(ctx); err != nil {
			return err
		}
		left, err := netstate.Found()
		if len(left.States)+len(left.Stray) > 0 || tunnel.Exists(d.Tunnel.Name) {
			t.Errorf("left: %v, %v; its tunnel: %v", left.States, left.Stray, tunnel.Exists(d.Tunnel.Name))
		}
		return err
	})
}

// TestTunnelOfNoDetour: a tunnel that is left of a detour which has ended, or was never written down, ends as the next
// agent starts; others stay.
func TestTunnelOfNoDetour(t *testing.T) {
	hostWithTunnels(t, func(ctx context.Context, a *Agent) error {
		d, _, err := visitsBy(ctx, t, a)
		if err != nil {
			return err
		}
		defer tunnel.Down(context.Background(), ends.Dir(a.config), d.Tunnel.Name) //nolint:errcheck // it goes with the namespace
		if a.endAstray(ctx); !tunnel.Exists(d.Tunnel.Name) {
			t.Error("the tunnel of a detour has ended")
		}
		displace(a, d.ID)
		if a.endAstray(ctx); tunnel.Exists(d.Tunnel.Name) {
			t.Error("a tunnel of no detour is left")
		}
		left, err := os.ReadDir(ends.Dir(a.config))
		if len(left) > 0 {
			t.Errorf("left: %v", left)
		}
		return err
	})
}

// TestHalfWrittenFile: what an agent was killed in writing is gone when the next has begun.
func TestHalfWrittenFile(t *testing.T) {
	a := bareAgent(t, &config.Config{Host: "rome"})
	for _, dir := range []string{a.config.State, a.config.Run} {
		if err := os.WriteFile(filepath.Join(dir, ".tmp-1"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	a.endHalfWritten()
	for _, dir := range []string{a.config.State, a.config.Run} {
		if left, err := filepath.Glob(filepath.Join(dir, ".tmp-*")); err != nil || len(left) > 0 {
			t.Errorf("left: %v, %v", left, err)
		}
	}
}

// TestAsideOutlivesTheHost: as a disk was set aside, its directory is opened, which is for nothing but to sync it. By
// its old name, which it would have again when its host loses its power, `doctor --clean` may take it for one that
// nobody needs.
func TestAsideOutlivesTheHost(t *testing.T) {
	m := comes(t, bareAgent(t, &config.Config{Host: "rome"}))
	path := diskOf(t, m.a, "web", 2)
	agenttest.OpensAfter(t, filepath.Dir(path), unix.IN_MOVED_TO, func() {
		if err := m.setDisksAside(); err != nil {
			t.Fatal(err)
		}
	})
}

// TestNamesAreToldByTheNextAgent: a name server that an agent did not get to tell of a guest's next addresses hears of
// them from the next one, once. Clients would else be sent to the old ones for good.
func TestNamesAreToldByTheNextAgent(t *testing.T) {
	server, taken := nametest.Server(t, 0)
	a := startedAgain(t)
	a.config.DNS = &server
	p, live := goodPreparation(), a.ctx
	m := &incoming{a: a, plan: p.Plan, rec: record.New("rome", p.Plan, time.Now()), work: &destinationWork{preparation: p}}
	m.work.guest = guests.New(m.expected(), nil)
	killed, kill := context.WithCancel(live)
	kill()
	a.ctx = killed
	if err := m.handed(nil, nil); err != nil {
		t.Fatal(err)
	}
	a.actors.Wait()
	a.ctx = live
	if err := a.records.Write("m-00000001-destination.json", func() record.Report { return record.NewReport(p.Plan, 1) }); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		a.resumeNames()
		a.actors.Wait()
	}
	if got := taken(); len(got) != 1 || !strings.Contains(got[0], "10.2.1.20") {
		t.Errorf("it was told %v", got)
	}
	if onDisk(t, a).Unnamed {
		t.Error("the next agent tells it again")
	}
	if rep, _, err := a.records.History("m-00000001"); err != nil || !strings.Contains(strings.Join(rep.Notes, " "), "name service: web.example.test. is 10.2.1.20 now") {
		t.Errorf("notes: %q, %v", rep.Notes, err)
	}
}

// TestEndForGoodIsToldByTheNextAgent: the home of a guest whose address took a detour for good hears that it has ended
// there, also where that did not answer as it did, and the agent ended before it was heard. No lease ends it at the
// home.
func TestEndForGoodIsToldByTheNextAgent(t *testing.T) {
	a := startedAgain(t)
	var answers atomic.Bool
	heard := make(chan string, 9)
	a.links["paris"] = linked(t, "rome", "paris", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !answers.Load() {
			peer.Answer(w, nil, errors.New("its disk is full"))
			return
		}
		heard <- r.URL.Path
		peer.Answer(w, nil, nil)
	}))
	d := detour.Detour{ID: "m-00000001", Guest: "web", Peer: "paris", Leased: true, Visiting: []netstate.Visiting{{Addr: theirsHere}}}
	place(a, &d)
	live := a.ctx
	killed, kill := context.WithCancel(live)
	a.ctx = killed
	err := a.endBoth(live, d)
	kill()
	a.actors.Wait()
	if err != nil || len(a.detours.List("")) > 0 {
		t.Fatalf("it has not ended here: %v", err)
	}
	a.ctx = live
	answers.Store(true)
	for range 2 {
		a.resumeEndings()
		a.actors.Wait()
	}
	if err := statefile.Write(ending{Detour: d.ID}.path(a), ending{Detour: d.ID, Peer: d.Peer}); err != nil {
		t.Fatal(err)
	}
	d.Visiting[0].Tunnel = "gwt-00000001"
	place(a, &d) // made anew
	short, end := context.WithTimeout(live, 50*time.Millisecond)
	defer end()
	a.ctx = short
	a.resumeEndings()
	a.actors.Wait()
	if left, err := os.ReadDir(a.config.StatePath("ended")); err != nil || len(left) != 1 {
		t.Errorf("of one that is there: %v, %v", left, err)
	}
	if len(heard) != 1 || <-heard != "/v1/detours/m-00000001/end" {
		t.Errorf("it was told %d times", len(heard))
	}
}

// TestNeighboursAreToldAgain: who is asked again to send addresses, which it does, tells neighbours of them again: it
// may have been killed before it had told them, and they go on sending to a home that does not lead them any more.
func TestNeighboursAreToldAgain(t *testing.T) {
	hostWithTunnels(t, func(ctx context.Context, a *Agent) error {
		for _, line := range []string{
			"link add port type veth peer name other", "link set port up master br0", "link set other up", "neigh add 10.2.1.40 lladdr 02:00:00:00:00:99 dev other nud reachable",
		} {
			if out, err := exec.Command("ip", strings.Fields(line)...).CombinedOutput(); err != nil {
				return fmt.Errorf("ip %s: %w: %s", line, err, out)
			}
		}
		a.config.Network.LAN = "br0"
		ask := goodRepoint()
		ask.Go = true
		d := detour.Detour{
			ID: ask.Migration, Guest: "web", Peer: "oslo", Leased: true, Up: clock.Now(), Tunnel: agenttest.Tunnel(t, ends.Dir(a.config), "gwt-00000002"), Asked: ask.Addresses,
			Away: []netstate.Away{{Addr: ask.Addresses[0], MAC: net.HardwareAddr{2, 0, 0, 0, 0, 0x99}, Tunnel: "gwt-00000002", Active: true,
				Gateway: netip.MustParseAddr("10.2.1.1"), Subnet: netip.MustParsePrefix("10.2.1.0/24")}},
		}
		place(a, &d)
		if _, err := tunnel.Up(ctx, d.Tunnel); err != nil {
			return err
		}
		defer tunnel.Down(context.Background(), ends.Dir(a.config), d.Tunnel.Name) //nolint:errcheck // it goes with the namespace
		if err := a.sendDirectly(ask, "oslo"); err != nil {
			return err
		}
		here, err := netstate.HardwareOf("br0")
		waitFor(t, "a neighbour knows that it is here", func() bool {
			out, _ := exec.Command("ip", "neigh", "show", "10.2.1.40", "dev", "other").Output() //nolint:errcheck // it is empty then
			return strings.Contains(string(out), here.String())
		})
		return err
	})
}

// TestForgottenBeforeItsDirectory: an agent that is killed as it lets an adopted guest go leaves it under care with its
// directory, without which it could not be moved, or not at all.
func TestForgottenBeforeItsDirectory(t *testing.T) {
	a := bareAgent(t, &config.Config{Host: "rome"})
	g := guests.New(goodHeld(a.config.Run), nil)
	g.Remember(func(h *care.Held) { h.Description.QMP = "/run/web.sock" })
	if err := errors.Join(os.MkdirAll(g.Held().Dir, 0o700), a.guests.Save(g)); err != nil {
		t.Fatal(err)
	}
	file := a.config.StatePath("guests", "web.json")
	if err := errors.Join(os.Remove(file), os.MkdirAll(filepath.Join(file, "in the way"), 0o700)); err != nil {
		t.Fatal(err)
	}
	if err := a.letGo(g); err == nil {
		t.Fatal("it is forgotten")
	}
	if _, err := os.Stat(g.Held().Dir); err != nil {
		t.Errorf("it is remembered still: %v", err)
	}
	if err := os.RemoveAll(file); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(a.guests.Save(g), a.letGo(g)); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(g.Held().Dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("its directory is left: %v", err)
	}
}

// TestGivenAnotherAddress: a guest that an agent gave another next address, as the first was taken, and which that was
// killed before it had written down, goes on with that, and is not given a third, nor the router's, which it may say
// that it has.
func TestGivenAnotherAddress(t *testing.T) {
	a, p := between(t), goodPreparation()
	given := netip.MustParsePrefix("10.2.1.33/24")
	m := &incoming{
		a: a, plan: p.Plan, rec: record.New("rome", p.Plan, time.Now()),
		work: &destinationWork{preparation: p, found: true, taken: map[netip.Addr]string{p.Plan.Next[0].Prefix.Addr(): "02:00:00:00:00:99"}},
	}
	m.work.guest = askedBy(forgetful{silent: new(bool), has: guest.Info{NICs: []guest.NIC{
		{MAC: p.Description.NICs[1].MAC, Addrs: []netip.Prefix{p.Plan.Next[0].Prefix, netip.MustParsePrefix("10.2.1.1/24"), given, netip.MustParsePrefix("10.1.1.33/24")}},
	}}}, guests.New(m.expected(), nil))
	if err := m.replaceTaken(t.Context()); err != nil || m.plan.Next[0].Prefix != given || m.offer.Plan.Next[0].Prefix != given {
		t.Errorf("%v, %v; want %s", m.plan.Next, err, given)
	}
	refusedBy(t, "another", a.book.Promise(given.Addr(), "db"), "guest web of this host has it")
}
