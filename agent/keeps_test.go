package agent

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"godwit/agent/addresses"
	"godwit/agent/agenttest"
	"godwit/agent/care"
	"godwit/agent/config"
	"godwit/agent/detour"
	"godwit/agent/disks"
	"godwit/agent/guests"
	"godwit/agent/outside"
	"godwit/agent/record"
	"godwit/agent/talk"
	"godwit/internal/need"
	"godwit/migration"
	"godwit/netstate/netns"
	"godwit/vm"
	"godwit/vm/guest"
)

// TestDetourOfNothingIsKept while its migration is under way: that of a guest that goes home with
// all that it has leads nothing, and its tunnel carries what was held if the migration is undone.
func TestDetourOfNothingIsKept(t *testing.T) {
	a, _, d := leasing(t)
	d.Leased, d.Until, d.Visiting, d.Up = false, time.Time{}, nil, time.Now().Add(-time.Hour)
	a.outgoing = map[string]*outgoing{d.ID: {}}
	if err := a.lookAfter(t.Context(), *d); err != nil {
		t.Error(err)
	}
	if _, ok := a.detours.Get(d.ID); !ok {
		t.Fatal("it was ended under its migration")
	}
	delete(a.outgoing, d.ID)
	if err := a.lookAfter(t.Context(), *d); err != nil {
		t.Error(err)
	}
	if _, ok := a.detours.Get(d.ID); ok {
		t.Error("it stays for good")
	}
}

// TestDetourEndsBeforeItLeads: where the tunnel that was agreed on is gone, that is an error.
func TestDetourEndsBeforeItLeads(t *testing.T) {
	a, g, d := leasing(t)
	displace(a, d.ID)
	m := &outgoing{a: a, guest: g, plan: migration.Plan{ID: "m-00000009", Guest: g.Name()}, work: &sourceWork{}}
	if err := m.leadAway(); err == nil || !strings.Contains(err.Error(), "has ended") {
		t.Errorf("%v", err)
	}
}

// diskOf writes the file of a guest's disk on this host.
func diskOf(t *testing.T, a *Agent, guest string, epoch uint64) string {
	t.Helper()
	path := a.diskPath(guest, epoch, "vda")
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte("what the guest wrote"), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// comes is the arrival of guest web with a disk at rome.
func comes(t *testing.T, a *Agent) *incoming {
	t.Helper()
	var err error
	if a.detours, err = detour.Load(a.config.StatePath("detours.json"), a.config.Network); err != nil {
		t.Fatal(err)
	}
	plan := migration.Plan{ID: "m-00000007", Guest: "web", From: "paris", To: "rome", Epoch: 2}
	p := talk.Preparation{Plan: plan, Description: config.Description{Name: "web", Disks: []vm.Disk{{ID: "vda"}}}}
	return &incoming{a: a, plan: plan, rec: record.New("rome", plan, time.Now()), work: &destinationWork{preparation: p}}
}

// TestRefusedArrivalLeavesDisks: what is undone of a guest that could not come, as another of its
// name and epoch runs here, is not that one's disk.
func TestRefusedArrivalLeavesDisks(t *testing.T) {
	a := bareAgent(t, &config.Config{Host: "rome"})
	path := diskOf(t, a, "web", 2)
	underCare(t, a.guests, "web", guests.New(care.Held{Description: config.Description{Name: "web"}}, nil))
	m := comes(t, a)
	if err := m.receive(t.Context()); err == nil {
		t.Fatal("it was received")
	}
	if err := m.sendBack(t.Context()); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(path); err != nil {
		t.Errorf("the disk of the guest that runs here: %v", err)
	}
}

// TestPrepareOfAKnownName is refused before anything is written down.
func TestPrepareOfAKnownName(t *testing.T) {
	a := bareAgent(t, &config.Config{Host: "rome"})
	underCare(t, a.guests, "web", guests.New(care.Held{Description: config.Description{Name: "web"}}, nil))
	_, err := a.incomingFor(talk.Preparation{Plan: migration.Plan{ID: "m-00000007", Guest: "web", From: "paris", Epoch: 2}})
	refusedBy(t, "a guest of that name is here", err, "of that name is on this host")
	if found, err := filepath.Glob(a.config.StatePath("journal", "*")); err != nil || len(found) > 0 {
		t.Errorf("written: %v, %v", found, err)
	}
}

// TestGivenUpDisksAreKept: what a guest wrote here before it was given up stays, also when it comes
// again with the same epoch and that fails.
func TestGivenUpDisksAreKept(t *testing.T) {
	for name, ran := range map[string]func(*incoming, bool){
		"it ran":                   func(m *incoming, so bool) { m.ran.Store(so) },
		"it was made to, just now": func(m *incoming, so bool) { m.work.started.Store(so) },
	} {
		t.Run(name, func(t *testing.T) { givenUpDisksAreKept(t, ran) })
	}
}

func givenUpDisksAreKept(t *testing.T, ran func(m *incoming, so bool)) {
	t.Helper()
	a := bareAgent(t, &config.Config{Host: "rome"})
	path := diskOf(t, a, "web", 2)
	m := comes(t, a)
	ran(m, true)
	m.work.guest = guests.New(care.Held{Description: m.work.preparation.Description, Dir: t.TempDir()}, nil)
	for range 2 { // it may be repeated
		if err := m.sendBack(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if err := new(disks.Arrived).Make(path, 4096); err != nil {
		t.Fatal(err)
	}
	ran(m, false)
	if err := m.sendBack(t.Context()); err != nil {
		t.Fatal(err)
	}
	left, err := filepath.Glob(filepath.Join(filepath.Dir(path), "*"))
	if err != nil || len(left) != 1 {
		t.Fatalf("%v, %v", left, err)
	}
	if data, err := os.ReadFile(left[0]); err != nil || string(data) != "what the guest wrote" {
		t.Errorf("%s: %q, %v", left[0], data, err)
	}
	if notes := strings.Join(m.rec.Snapshot().Notes, " "); !strings.Contains(notes, left[0]) {
		t.Errorf("nobody is told of %s: %s", left[0], notes)
	}
}

// TestTakenIsNotForgotten: a next address that somebody took is not used either when the handover is
// tried again.
func TestTakenIsNotForgotten(t *testing.T) {
	a := between(t)
	m := comes(t, a)
	next := netip.MustParsePrefix("10.2.1.10/24")
	m.plan.Next = []migration.Address{{Prefix: next, Home: "rome"}}
	m.work.guest = guests.New(care.Held{}, nil)
	looks := make(chan struct{}, 2)
	m.work.guard.Store(addresses.Watch(t.Context(), migration.Bare(m.plan.Next), time.Millisecond, func(context.Context, netip.Addr) (string, bool) {
		select {
		case looks <- struct{}{}:
		default:
		}
		return "52:54:00:00:00:01", true
	}))
	<-looks
	<-looks // what the first has seen is known
	gone, cancel := context.WithCancel(t.Context())
	cancel() // nothing can be probed
	for range 2 {
		if err := m.replaceTaken(gone); err == nil {
			t.Fatalf("it has %v", m.plan.Next)
		}
	}
}

// TestRefusedByItsGuest: a next address that a guest is not given, as somebody else has it by then, is taken: the next
// try is with another one.
func TestRefusedByItsGuest(t *testing.T) {
	m := comes(t, between(t))
	next := netip.MustParsePrefix("10.2.1.10/24")
	m.plan.Next = []migration.Address{{Prefix: next, Home: "rome"}}
	m.work.taken = map[netip.Addr]string{} // it was free when the LAN was asked
	d := goodPreparation().Description
	d.Agent = config.AgentDHCP
	m.work.guest = askedBy(refusing{}, guests.New(care.Held{Description: d}, nil))
	var said bytes.Buffer
	m.a.log = slog.New(slog.NewTextHandler(&said, nil))
	err := m.setNext(t.Context())
	if inUse := (*outside.InUseError)(nil); !errors.As(err, &inUse) || m.work.taken[next.Addr()] != "52:54:00:00:02:0a" {
		t.Errorf("%v; taken are %v", err, m.work.taken)
	}
	agenttest.Refused(t, "where no other is tried", err, migration.CodeAddress, "10.2.1.10", "--address")
	if strings.Contains(said.String(), "introduce") { // there is no LAN here: it is tried in vain
		t.Errorf("the LAN is told that it is the guest's: %s", said.String())
	}
}

// TestReplacedIsNotTried: what takes the place of a next address that somebody has is none that was refused before,
// though nobody answers for it.
func TestReplacedIsNotTried(t *testing.T) {
	need.Root(t)
	m := comes(t, between(t))
	m.a.config.Network.First = 10
	m.plan.Next = []migration.Address{{Prefix: netip.MustParsePrefix("10.2.1.11/24"), Home: "rome"}}
	m.work.taken = map[netip.Addr]string{netip.MustParseAddr("10.2.1.10"): "somebody", netip.MustParseAddr("10.2.1.11"): "somebody"}
	err := netns.Once(func() error {
		for _, line := range []string{"link add br0 type bridge", "link set br0 up", "addr add 10.2.1.2/24 dev br0"} {
			if out, err := exec.Command("ip", strings.Fields(line)...).CombinedOutput(); err != nil {
				return fmt.Errorf("ip %s: %w: %s", line, err, out)
			}
		}
		return m.replaceTaken(t.Context())
	})
	if next := m.plan.Next[0].Prefix; err != nil || next != netip.MustParsePrefix("10.2.1.12/24") {
		t.Errorf("%v, %v", next, err)
	}
}

// A refusing guest's next address is another's.
type refusing struct{ guest.Channel }

func (refusing) Configure(_ context.Context, p guest.Configure) (guest.Configured, error) {
	return guest.Configured{}, &outside.InUseError{Guest: "web", Addr: p.Addrs[0].Addr(), By: "52:54:00:00:02:0a"}
}

// TestAnnouncedByOtherIDs: where the guest could not take the ids that it was to take, those that
// it took are used from then on, and later ones follow them.
func TestAnnouncedByOtherIDs(t *testing.T) {
	m := comes(t, between(t))
	told := []migration.Address{{Prefix: netip.MustParsePrefix("10.2.1.10/24"), Endpoint: 3}, {Prefix: netip.MustParsePrefix("fd02::10/64"), Endpoint: 4}}
	m.plan.Next = told
	m.announcedBy([]uint8{7, 8, 0})
	if next := m.plan.Next; next[0].Endpoint != 7 || next[1].Endpoint != 8 || m.offer.Plan.Next[1].Endpoint != 8 || told[0].Endpoint != 3 {
		t.Errorf("%+v, the journal has %+v", next, m.offer.Plan.Next)
	}
	if last := m.lastEndpoint(); last != 8 {
		t.Errorf("the last is %d, want 8", last)
	}
}

// TestNextOfAnotherGuest: a prepare whose next address another guest got since the check, or was promised, is refused;
// from then on the address is the guest's, and nobody else is promised it.
func TestNextOfAnotherGuest(t *testing.T) {
	a := between(t)
	p := goodPreparation()
	p.Tunnel = netip.MustParseAddrPort("192.0.2.1:700")
	next := p.Plan.Next[0].Prefix.Addr()
	a.abortedEarly["paris "+p.Plan.ID] = earlyAbort{time.Now(), p.Plan.Epoch} // nothing is made of what is not refused before
	prepare := func() error {
		_, err := a.peerPrepare(callFrom(t, "paris", p.Plan.ID, p))
		return err
	}
	has := func(name string) {
		a.guests = guests.In(t.TempDir())
		underCare(t, a.guests, name, guests.New(care.Held{Addresses: []migration.Address{{Prefix: p.Plan.Next[0].Prefix}}}, nil))
	}
	has("db")
	agenttest.Refused(t, "it is db's", prepare(), migration.CodeAddress, "guest db has it")
	has("web")
	agenttest.Refused(t, "it is its own", prepare(), migration.CodeAsked, "gave it up")
	a.guests = guests.In(t.TempDir())
	a.book.Release("web", netip.Addr{})
	if err := a.book.Promise(next, "db"); err != nil {
		t.Fatal(err)
	}
	agenttest.Refused(t, "it is promised to db", prepare(), migration.CodeAddress, "guest db has it, or was promised it")
	a.book.Release("db", next)
	agenttest.Refused(t, "it is nobody's", prepare(), migration.CodeAsked, "gave it up")
	agenttest.Refused(t, "then it is kept for it", a.book.Promise(next, "db"), migration.CodeAddress, "guest web")
}
