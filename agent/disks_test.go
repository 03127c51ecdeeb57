package agent

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"godwit/agent/care"
	"godwit/agent/config"
	"godwit/agent/disks"
	"godwit/agent/guests"
	"godwit/agent/hook"
	"godwit/agent/journal"
	"godwit/agent/record"
	"godwit/agent/talk"
	"godwit/agent/written"
	"godwit/internal/lasting/lastingtest"
	"godwit/migration"
	"godwit/vm"
)

// awaiting is rome's agent before guest web comes with a disk by an epoch that it had there before, and what
// is to come.
func awaiting(t *testing.T) (*Agent, talk.Preparation) {
	t.Helper()
	a := between(t)
	a.ctx, a.feed, a.metrics = t.Context(), newFeed(), newMetrics(a.config)
	a.hooks = hook.New(hook.Config{Dir: t.TempDir()}, a.log, a.hookNote, a.metrics.HookCalled)
	t.Cleanup(a.hooks.Close)
	p := goodPreparation()
	p.Plan.Epoch = 2
	p.Description.Disks = []vm.Disk{{ID: "vda", Path: "/x", Format: "raw"}}
	return a, p
}

// onlyOne says whether the disk that was there is the only one left, under a name that is no migration's.
func onlyOne(t *testing.T, path string) {
	t.Helper()
	left, err := filepath.Glob(filepath.Join(filepath.Dir(path), "*"))
	if err != nil || len(left) != 1 || left[0] == path || !strings.HasSuffix(left[0], ".m-00000001.raw") {
		t.Fatalf("%v, %v", left, err)
	}
	if data, err := os.ReadFile(left[0]); err != nil || string(data) != "what the guest wrote" {
		t.Errorf("%s: %q, %v", left[0], data, err)
	}
}

// TestEarlierDiskIsKept: a guest that was started anew elsewhere may come by the epoch that it had here when
// this host lost its power. What it wrote until then stays, also if the migration is undone, and is told of.
func TestEarlierDiskIsKept(t *testing.T) {
	a, p := awaiting(t)
	path := diskOf(t, a, "web", 2)
	m, err := a.incomingFor(p) // its disk's size is not said, so that it is undone at once
	if err != nil {
		t.Fatal(err)
	}
	a.actors.Wait()
	if !m.snapshot().Refused() {
		t.Fatalf("it is %s", m.snapshot().Landing)
	}
	onlyOne(t, path)
	if notes := strings.Join(m.rec.Snapshot().Notes, " "); !strings.Contains(notes, "web-2-vda.before.m-00000001.raw") {
		t.Errorf("nobody is told of it: %q", notes)
	}
	if _, err := a.incomingFor(p); err == nil {
		t.Error("what has ended begins again")
	}
	onlyOne(t, path)
}

// TestRestartedAgentKnowsItsDisks: an agent that is killed before it made a disk, or after, finds its own to
// remove, and not the one that was there; and one whose journal has nothing yet has none.
func TestRestartedAgentKnowsItsDisks(t *testing.T) {
	for name, made := range map[string]bool{"before it made one": false, "after": true} {
		t.Run(name, func(t *testing.T) {
			a, p := awaiting(t)
			path := diskOf(t, a, "web", 2)
			first := &incoming{a: a, plan: p.Plan, rec: record.New("rome", p.Plan, a.clock()), work: &destinationWork{preparation: p}}
			if err := first.setEarlierAside(); err != nil {
				t.Fatal(err)
			}
			if made {
				if err := new(disks.Arrived).Make(path, 4096); err != nil {
					t.Fatal(err)
				}
			}
			journalOf(t, a, p.Plan.ID, written.Destination{
				Side: "destination", Offer: talk.Offer{Plan: p.Plan, Description: p.Description}, Preparation: p,
				State: migration.Destination{Landing: migration.Receiving, Epoch: 2},
			})
			a.resumeMigrations(t.Context(), nil)
			a.actors.Wait()
			if left, err := journal.Unfinished(a.config.StatePath("journal")); err != nil || len(left) > 0 {
				t.Fatalf("not undone: %v, %v, %v", left, err, a.unread)
			}
			onlyOne(t, path)
		})
	}
}

// TestAsideIsNotReplaced: nothing that was set aside is written over.
func TestAsideIsNotReplaced(t *testing.T) {
	a, p := awaiting(t)
	path := diskOf(t, a, "web", 2)
	kept := strings.TrimSuffix(path, ".raw") + ".before.m-00000001.raw"
	if err := os.WriteFile(kept, []byte("of an earlier time"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := a.incomingFor(p); err == nil || !strings.Contains(err.Error(), "is there already") {
		t.Errorf("%v", err)
	}
	if ids, err := journal.Unfinished(a.config.StatePath("journal")); err != nil || len(ids) > 0 {
		t.Errorf("begun: %v, %v", ids, err)
	}
	for file, want := range map[string]string{path: "what the guest wrote", kept: "of an earlier time"} {
		if data, err := os.ReadFile(file); err != nil || string(data) != want {
			t.Errorf("%s: %q, %v", file, data, err)
		}
	}
}

// TestDiskOfAnotherGuestStays: the names of two guests' disks may be the same.
func TestDiskOfAnotherGuestStays(t *testing.T) {
	a, p := awaiting(t)
	p.Description.Disks[0].ID = "a-3-vda"
	path := diskOf(t, a, "web-2-a", 3)
	underCare(t, a.guests, "web-2-a", guests.New(care.Held{Description: config.Description{Name: "web-2-a", Disks: []vm.Disk{{ID: "vda", Path: path}}}}, nil))
	_, err := a.incomingFor(p)
	refusedBy(t, "another guest's", err, "that of guest web-2-a")
	if _, err := os.Stat(path); err != nil {
		t.Error(err)
	}
}

// TestRemovedDisksStayRemoved: it is said where a disk's file is gone, and may come back with a host that loses its power.
func TestRemovedDisksStayRemoved(t *testing.T) {
	a := between(t)
	path := diskOf(t, a, "web", 2)
	kept := filepath.Join(t.TempDir(), "their.raw")
	if err := os.WriteFile(kept, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	var said error
	if err := lastingtest.WithoutDescriptors(func() { said = a.removeDisks([]vm.Disk{{ID: "vda", Path: path}, {ID: "vdb", Path: kept}}) }); err != nil {
		t.Fatal(err)
	}
	if !errors.Is(said, unix.EMFILE) {
		t.Errorf("it was not made last, and said: %v", said)
	}
	if err := a.removeDisks([]vm.Disk{{ID: "vda", Path: path}}); err != nil { // it is gone
		t.Error(err)
	}
	for path, want := range map[string]error{path: fs.ErrNotExist, kept: nil} {
		if _, err := os.Lstat(path); !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", path, err, want)
		}
	}
}

// TestDisksThatCameAreSynced: a disk that came here is put on the storage before the source drops its own. Where that
// fails it stays so until a person has seen to it, whichever agent asks, and is told. One that is elsewhere is not ours
// to see to.
func TestDisksThatCameAreSynced(t *testing.T) {
	a, p := awaiting(t)
	path := diskOf(t, a, "web", 2)
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	brought := func(disks ...vm.Disk) *incoming {
		m := &incoming{a: a, plan: p.Plan, work: &destinationWork{guest: guests.New(care.Held{}, nil)}, rec: record.New("rome", p.Plan, time.Now())}
		m.work.guest.Remember(func(h *care.Held) { h.Description.Disks = disks })
		return m
	}
	ours, elsewhere := vm.Disk{ID: "vda", Path: path}, vm.Disk{ID: "vdb", Path: filepath.Join(t.TempDir(), "shared.raw")}
	m := brought(ours, elsewhere)
	if err := m.work.arrived.Make(path, 4096); err != nil {
		t.Fatal(err)
	}
	if err := m.syncDisks(); err != nil { // that elsewhere is not even there
		t.Fatal(err)
	}
	m.work.arrived.Close() // so that a sync fails
	if err := m.syncDisks(); err == nil || len(m.rec.Snapshot().Notes) != 1 {
		t.Errorf("%v, noted %q", err, m.rec.Snapshot().Notes)
	}
	mark := a.config.StatePath("unsynced-" + p.Plan.ID)
	if _, err := os.Stat(mark); err != nil {
		t.Error(err)
	}
	later := brought(ours)
	if err := later.syncDisks(); err == nil {
		t.Error("a later agent has its source drop it")
	}
	if err := os.Remove(mark); err != nil { // a person
		t.Fatal(err)
	}
	if err := later.syncDisks(); err != nil {
		t.Error(err)
	}
}
