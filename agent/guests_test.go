package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"godwit/agent/agenttest"
	"godwit/agent/care"
	"godwit/agent/config"
	"godwit/agent/detour"
	"godwit/agent/limits"
	"godwit/agent/record"
	"godwit/agent/statefile"
	"godwit/migration"
	"godwit/vm"
)

// TestOneGuestOfAName: of two guests of one name that are started or received at the same time
// the second is refused before anything is made, as it would have the same directory.
func TestOneGuestOfAName(t *testing.T) {
	a := bareAgent(t, &config.Config{Host: "rome"})
	named := func(name string) *Guest { return &Guest{Held: care.Held{Description: config.Description{Name: name}}} }
	first, second, other := named("web"), named("web"), named("db")
	if err := a.guests.expect(first); err != nil {
		t.Fatal(err)
	}
	agenttest.Refused(t, "while the first is started", a.guests.expect(second), migration.CodeBusy, "web")
	if err := a.guests.expect(other); err != nil || other.Held.Number == first.Held.Number {
		t.Errorf("%v, number %d", err, other.Held.Number)
	}
	if err := a.guests.save(first); err != nil {
		t.Fatal(err)
	}
	agenttest.Refused(t, "while the first is here", a.guests.expect(second), migration.CodeBusy, "web")
	if err := a.guests.forget(first); err != nil {
		t.Fatal(err)
	}
	if err := a.guests.expect(second); err != nil {
		t.Error(err)
	}
	m := &incoming{a: a, plan: migration.Plan{ID: "m-00000001", Guest: "web", Epoch: 2}, rec: record.New("rome", migration.Plan{}, a.clock()), work: &destinationWork{}}
	m.work.preparation.Description.Name = "web"
	a.ctx = t.Context()
	agenttest.Refused(t, "received", m.receive(t.Context()), migration.CodeBusy, "web")
	if m.work.guest != nil {
		t.Error("there is something to undo of it")
	}
}

// TestBusyWords: who finds a guest busy is told to abort what can be aborted, and nothing else.
func TestBusyWords(t *testing.T) {
	for busy, call := range map[string]bool{"m-00000001": true, "stop": false, "taken back by paris": false} {
		g := &Guest{busy: busy}
		if err := g.take("m-00000002"); err == nil || strings.Contains(err.Error(), "godwit abort") != call || !strings.Contains(err.Error(), busy) {
			t.Errorf("%s: %v", busy, err)
		}
	}
}

// TestAskedWhileItChanges: what is remembered of a guest is asked for, and written down, while
// the end of a lease, or a handover, changes it. (The race detector looks on in `make race`.)
func TestAskedWhileItChanges(t *testing.T) {
	a := bareAgent(t, &config.Config{Host: "paris"})
	a.detours, a.incoming = detour.New("", config.Network{}, map[string]*detour.Detour{}), map[string]*incoming{}
	addr := func(n byte) migration.Address {
		return migration.Address{Prefix: netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 1, 1, n}), 24), Home: "paris"}
	}
	g := &Guest{Held: care.Held{Description: config.Description{Name: "web"}, Addresses: []migration.Address{addr(1), addr(2)}}}
	a.guests.byName["web"] = g
	before := g.held()
	var all sync.WaitGroup
	for _, f := range []func(){
		func() {
			g.remember(func(h *care.Held) {
				h.Addresses = slices.DeleteFunc(h.Addresses, func(x migration.Address) bool { return x.Prefix == addr(1).Prefix })
				h.Addresses = append(h.Addresses, addr(1))
			})
		},
		func() { a.takenAddresses() },
		func() { a.info(t.Context()) },
		func() {
			if err := a.guests.save(g); err != nil {
				t.Error(err)
			}
		},
	} {
		all.Go(func() {
			for range 20 {
				f()
			}
		})
	}
	all.Wait()
	if before.Addresses[0] != addr(1) || before.Addresses[1] != addr(2) {
		t.Errorf("what was asked for before has changed: %v", before.Addresses)
	}
}

// hangs is a QEMU that answers nobody, as where its storage hangs.
type hangs struct{ gone }

func (hangs) PID() int { return 1 }
func (hangs) Status(ctx context.Context) (vm.Status, error) {
	<-ctx.Done()
	return "", ctx.Err()
}

// TestHostWithSilentGuests: who asks for a host's guests waits for those whose QEMUs answer nobody once, and not for long.
func TestHostWithSilentGuests(t *testing.T) {
	a := between(t)
	for n := range 10 {
		name := fmt.Sprint("web", n)
		a.guests.byName[name] = &Guest{Held: care.Held{Description: config.Description{Name: name}}, Machine: hangs{}}
	}
	synctest.Test(t, func(t *testing.T) {
		begun := time.Now()
		info := a.info(t.Context())
		if took := time.Since(begun); took > limits.Status.For {
			t.Errorf("it took %v", took)
		}
		for n, g := range info.Guests {
			if g.Name != fmt.Sprint("web", n) || !strings.Contains(g.Status, "unknown") || !strings.Contains(g.Status, "limit qemu_status") {
				t.Errorf("%+v", g)
			}
		}
	})
}

// TestForgottenOnASlowDisk: who asks for guests while one is forgotten does not wait for the disk; one of its name that comes
// meanwhile is written down after that.
func TestForgottenOnASlowDisk(t *testing.T) {
	s := &guests{dir: t.TempDir(), byName: map[string]*Guest{}}
	old, next := &Guest{Held: care.Held{Description: config.Description{Name: "web"}}}, &Guest{Held: care.Held{Description: config.Description{Name: "web"}, Epoch: 2}}
	if err := s.save(old); err != nil {
		t.Fatal(err)
	}
	asked, done := make(chan struct{}), make(chan struct{})
	removeGuest = func(path string) error { close(asked); <-done; return statefile.Remove(path) }
	defer func() { removeGuest = statefile.Remove }()
	forgotten, looked, saved := make(chan error, 1), make(chan error, 1), make(chan error, 1)
	go func() { forgotten <- s.forget(old) }()
	<-asked
	go func() { looked <- s.expect(next) }()
	select {
	case err := <-looked:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(10 * time.Second):
		t.Error("it waits for the disk")
	}
	go func() { saved <- s.save(next) }()
	close(done)
	if err := errors.Join(<-forgotten, <-saved); err != nil {
		t.Fatal(err)
	}
	var h care.Held
	if data, err := os.ReadFile(filepath.Join(s.dir, "web.json")); err != nil || json.Unmarshal(data, &h) != nil || h.Epoch != 2 {
		t.Errorf("written down: %s, %v", data, err)
	}
}

// takesLong is a QEMU whose end takes its time.
type takesLong struct {
	gone
	asked, then chan struct{}
}

func (q takesLong) Quit(context.Context) error {
	q.asked <- struct{}{}
	<-q.then
	return nil
}

// TestStoppedOnce: of two who stop a guest at once the second is told so. It would end what is made by then for another of the
// guest's name.
func TestStoppedOnce(t *testing.T) {
	a := between(t)
	q := takesLong{gone{done: make(chan struct{})}, make(chan struct{}, 2), make(chan struct{})}
	a.guests.byName["web"] = &Guest{Held: care.Held{Description: config.Description{Name: "web"}, Dir: filepath.Join(t.TempDir(), "web-1")}, Machine: q}
	stop := func() chan error {
		r, done := callFrom(t, "rome", "", nil), make(chan error, 1)
		r.SetPathValue("name", "web")
		go func() {
			_, err := a.apiStopGuest(r)
			done <- err
		}()
		return done
	}
	first := stop()
	<-q.asked
	second := stop()
	select {
	case err := <-second:
		agenttest.Refused(t, "the second", err, migration.CodeBusy, "web", "stop")
	case <-q.asked:
		t.Error("it is ended twice")
	}
	close(q.then)
	if err := <-first; err != nil {
		t.Error(err)
	}
}

// TestAskedToMoveAsItLeaves: who asks for a migration of a guest that is just leaving, or is let go of, is told that it is not here. It would be
// tried with what is left of the guest, and be told to have failed.
func TestAskedToMoveAsItLeaves(t *testing.T) {
	a := between(t)
	g := &Guest{Held: care.Held{Description: config.Description{Name: "web"}}}
	if err := a.guests.save(g); err != nil {
		t.Fatal(err)
	}
	pipe := a.config.StatePath("journal", "m-000000ff.journal")
	if err := errors.Join(os.MkdirAll(filepath.Dir(pipe), 0o700), unix.Mkfifo(pipe, 0o600)); err != nil {
		t.Fatal(err)
	}
	asked := make(chan error, 1)
	go func() {
		_, err := a.draft(migration.Request{Guest: "web", To: "oslo"})
		asked <- err
	}()
	w, err := os.OpenFile(pipe, os.O_WRONLY, 0) // it has found the guest, and looks for its journals
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(a.guests.forget(g), os.Remove(pipe), w.Close()); err != nil {
		t.Fatal(err)
	}
	agenttest.Refused(t, "it has left", <-asked, migration.CodeUnknownGuest, "web", "not under care")
	if g.migration() != "" {
		t.Errorf("it is busy with %s", g.migration())
	}
	if err := a.guests.save(&Guest{Held: care.Held{Description: config.Description{Name: "web"}, Epoch: 2}}); err != nil {
		t.Fatal(err)
	}
	agenttest.Refused(t, "it has come back", a.guests.takeHere(g, "stop"), migration.CodeBusy, "web", "try again")
}

// TestNobodyToAsk: a guest without a channel is not waited for.
func TestNobodyToAsk(t *testing.T) {
	g := &Guest{Machine: vmOf{}}
	if c, err := g.reach(t.Context(), limits.AskGuest); !errors.Is(err, errNoChannel) || c != nil || g.hasChannel() {
		t.Errorf("reached %v, %v", c, err)
	}
}
