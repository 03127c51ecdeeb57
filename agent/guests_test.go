package agent

import (
	"context"
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
	"godwit/agent/guests"
	"godwit/agent/limits"
	"godwit/agent/record"
	"godwit/agent/talk"
	"godwit/migration"
	"godwit/vm"
	"godwit/vm/guest"
)

// TestReceivedBesideOneOfItsName: of a guest whose name another has here, or comes with, nothing is made.
func TestReceivedBesideOneOfItsName(t *testing.T) {
	a := bareAgent(t, &config.Config{Host: "rome"})
	if err := a.guests.Expect(guests.New(care.Held{Description: config.Description{Name: "web"}}, nil)); err != nil {
		t.Fatal(err)
	}
	m := &incoming{a: a, plan: migration.Plan{ID: "m-00000001", Guest: "web", Epoch: 2}, rec: record.New("rome", migration.Plan{}, a.clock()), work: &destinationWork{}}
	m.work.preparation.Description.Name = "web"
	a.ctx = t.Context()
	agenttest.Refused(t, "received", m.receive(t.Context()), migration.CodeBusy, "web")
	if m.work.guest != nil {
		t.Error("there is something to undo of it")
	}
}

// TestGuestsCatchUp: what could not be written down of a guest is written all the time.
func TestGuestsCatchUp(t *testing.T) {
	a, g, _ := leasing(t)
	dir := a.config.StatePath("guests")
	if err := errors.Join(os.RemoveAll(dir), os.WriteFile(dir, nil, 0o600)); err != nil { // a file where the directory should be
		t.Fatal(err)
	}
	if err := a.guests.SaveIfHere(g); err == nil {
		t.Fatal("written to what is no directory")
	}
	if err := os.Remove(dir); err != nil {
		t.Fatal(err)
	}
	a.catchUp()
	if _, err := os.Stat(filepath.Join(dir, g.Name()+".json")); err != nil {
		t.Error(err)
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
	g := guests.New(care.Held{Description: config.Description{Name: "web"}, Addresses: []migration.Address{addr(1), addr(2)}}, nil)
	underCare(t, a.guests, "web", g)
	before := g.Held()
	var all sync.WaitGroup
	for _, f := range []func(){
		func() {
			g.Remember(func(h *care.Held) {
				h.Addresses = slices.DeleteFunc(h.Addresses, func(x migration.Address) bool { return x.Prefix == addr(1).Prefix })
				h.Addresses = append(h.Addresses, addr(1))
			})
		},
		func() { a.takenAddresses() },
		func() { a.info(t.Context()) }, //nolint:errcheck // which there are is known
		func() {
			if err := a.guests.Save(g); err != nil {
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
		underCare(t, a.guests, name, guests.New(care.Held{Description: config.Description{Name: name}}, hangs{}))
	}
	synctest.Test(t, func(t *testing.T) {
		begun := time.Now()
		info, err := a.info(t.Context())
		if err != nil {
			t.Fatal(err)
		}
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

// TestStoppedOnce: of two who stop a guest at once the second is told so. It would end what is made by then for another
// of the guest's name.
func TestStoppedOnce(t *testing.T) {
	a := between(t)
	q := takesLong{gone{done: make(chan struct{})}, make(chan struct{}, 2), make(chan struct{})}
	underCare(t, a.guests, "web", guests.New(care.Held{Description: config.Description{Name: "web"}, Dir: filepath.Join(t.TempDir(), "web-1")}, q))
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

// TestAskedToMoveAsItLeaves: who asks for a migration of a guest that is just leaving, or is let go of, is told that it
// is not here. It would be tried with what is left of the guest, and be told to have failed.
func TestAskedToMoveAsItLeaves(t *testing.T) {
	a := between(t)
	g := guests.New(care.Held{Description: config.Description{Name: "web"}}, nil)
	if err := a.guests.Save(g); err != nil {
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
	if err := errors.Join(a.guests.Forget(g), os.Remove(pipe), w.Close()); err != nil {
		t.Fatal(err)
	}
	agenttest.Refused(t, "it has left", <-asked, migration.CodeUnknownGuest, "web", "not under care")
	if g.Migration() != "" {
		t.Errorf("it is busy with %s", g.Migration())
	}
	if err := a.guests.Save(guests.New(care.Held{Description: config.Description{Name: "web"}, Epoch: 2}, nil)); err != nil {
		t.Fatal(err)
	}
	agenttest.Refused(t, "it has come back", a.guests.TakeHere(g, "stop"), migration.CodeBusy, "web", "try again")
}

// TestHandedAddresses: what a handover gave is marked by it, what is kept beside that is not, and the mark and the
// boot go on with the guest.
func TestHandedAddresses(t *testing.T) {
	a := between(t)
	a.ctx = t.Context()
	old := migration.Address{Prefix: netip.MustParsePrefix("10.1.1.30/24"), Home: "paris", Endpoint: 3, Handover: "m-00000001"}
	next := migration.Address{Prefix: netip.MustParsePrefix("10.2.1.20/24"), Home: "rome"}
	plan := migration.Plan{ID: "m-00000002", Guest: "web", From: "paris", To: "rome", Network: "mptcp", Held: []migration.Address{old}, Next: []migration.Address{next}}
	p := talk.Preparation{Plan: plan, Description: config.Description{Name: "web", NICs: []config.NIC{{MAC: "52:54:00:00:01:0a"}, {MAC: "52:54:00:00:01:0b"}}}, Boot: "first"}
	m := &incoming{a: a, plan: plan, rec: record.New("rome", plan, time.Now()), work: &destinationWork{preparation: p, keepsOld: true}}
	g := guests.New(m.expected(), nil)
	if m.work.guest = g; g.Held().Boot != "first" {
		t.Errorf("it comes in boot %q", g.Held().Boot)
	}
	if err := m.handed(nil, nil); err != nil {
		t.Fatal(err)
	}
	given, kept := g.Held().Handed()
	if len(given) != 1 || given[0].Prefix != next.Prefix || given[0].Handover != plan.ID || len(kept) != 1 || kept[0].Prefix != old.Prefix {
		t.Errorf("given %+v, kept %+v", given, kept)
	}
	out := &outgoing{a: a, guest: g, plan: migration.Plan{Network: "tunnel"}, work: &sourceWork{}, rec: record.New("rome", plan, time.Now())}
	g.SpeakBy(forgetful{silent: new(bool), has: guest.Info{BootID: "second"}})
	if err := out.checkGuest(t.Context()); err != nil || out.work.boot != "first" {
		t.Errorf("at its source: boot %q, %v", out.work.boot, err)
	}
	p.Boot, p.Description.Memory = strings.Repeat("x", care.LongestBoot+1), 1<<28
	refusedBy(t, "a long boot id", p.Check(), "a boot id of")
}

// TestDoesNotWaitForEver: a migration that is asked for while something else changes its guest's addresses begins when
// that is done, and is refused where that takes too long; then the guest is not its any more.
func TestDoesNotWaitForEver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := between(t)
		g := underCare(t, a.guests, "web", guests.New(care.Held{}, runs{gone{done: make(chan struct{})}}))
		a.ctx = t.Context()
		for took, goes := range map[time.Duration]bool{limits.Ending.For - time.Second: true, limits.Ending.For + time.Second: false} {
			g.LockAddresses()
			time.AfterFunc(took, g.UnlockAddresses)
			m, err := a.draft(migration.Request{Guest: "web", To: "oslo"})
			if goes {
				if err != nil {
					t.Fatal(err)
				}
				g.Drop(m.plan.ID)
				continue
			}
			agenttest.Refused(t, took.String(), err, migration.CodeBusy, "web", "30s")
			if busy := g.Migration(); busy != "" {
				t.Errorf("the guest is busy with %s", busy)
			}
			time.Sleep(2 * time.Second)
		}
	})
}
