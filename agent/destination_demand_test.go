package agent

import (
	"math"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"godwit/agent/agenttest"
	"godwit/agent/capable"
	"godwit/agent/config"
	"godwit/agent/record"
	"godwit/agent/talk"
	"godwit/migration"
	"godwit/vm"
)

// TestRoomIsGivenOnce: of guests that come at the same time, of which this host has room for one, it takes the first.
// What that one has filled is no room any more; when it runs here, or has been refused, it is owed nothing.
func TestRoomIsGivenOnce(t *testing.T) {
	a := between(t)
	memory, err := capable.AvailableMemory()
	if err != nil {
		t.Fatal(err)
	}
	disk, _, err := a.roomFor("", 0)
	if err != nil {
		t.Fatal(err)
	}
	offered := func(name string, memory, disk int64) talk.Offer {
		return talk.Offer{
			Plan:        migration.Plan{ID: name, Guest: name, Epoch: 2},
			Description: config.Description{Name: name, Disks: []vm.Disk{{ID: "a"}}},
			Facts:       vm.Facts{Memory: memory, Disks: []vm.Disk{{ID: "a", Size: disk}}},
		}
	}
	for name, first := range map[string]talk.Offer{
		"memory": offered("web", memory*6/10, 1),
		"disk":   offered("web", 1, (disk-diskReserve)*6/10),
	} {
		t.Run(name, func(t *testing.T) {
			second := first
			second.Plan.Guest = "db"
			m := &incoming{a: a, plan: first.Plan, rec: record.New("rome", first.Plan, time.Now()), order: a.admitted(),
				work: &destinationWork{preparation: talk.Preparation{Plan: first.Plan, Description: first.Description, Facts: first.Facts}}}
			a.incoming[m.plan.ID] = m
			for landing, refused := range map[migration.Landing]bool{
				migration.Receiving: true, migration.Waiting: true, migration.Starting: true,
				migration.Adopting: false, migration.Landed: false, migration.Declining: false, migration.Gone: false,
			} {
				m.state.Landing = landing
				err := a.roomForAll(second, math.MaxUint64)
				if (err != nil) != refused {
					t.Errorf("the first one is %s: %v", landing, err)
				}
				if refused && (err == nil || !strings.Contains(err.Error(), "MiB for guests on their way here")) {
					t.Errorf("the first one is %s: %v", landing, err)
				}
				if err := a.roomForAll(first, m.order); err != nil {
					t.Errorf("the first one itself: %v", err)
				}
			}
			m.state = migration.Destination{Landing: migration.Adopting} // it runs, and its memory follows
			m.offer.Plan.Transfer, m.offer.Plan.Mode = "lanes", "postcopy"
			if err := a.roomForAll(second, everyone); (err != nil) != (name == "memory") {
				t.Errorf("the first one's pages follow it: %v", err)
			}
			m.rec.Edit(func(r *record.Report) { r.MemoryDone = 1 })
			if err := a.roomForAll(second, everyone); err != nil {
				t.Errorf("the first one's last page is here: %v", err)
			}
			m.state = migration.Destination{Landing: migration.Waiting, Vanished: true} // it never starts here any more
			if err := a.roomForAll(second, everyone); err != nil {
				t.Errorf("the first one's QEMU is gone: %v", err)
			}
			m.state = migration.Destination{Landing: migration.Waiting}
			m.work.preparation.Facts.PageSize = 2 << 20
			if owed := a.owed(everyone); name == "memory" && owed.memory != 0 {
				t.Errorf("in huge pages: %+v", owed)
			}
		})
	}
	t.Run("what is filled", func(t *testing.T) {
		m := a.incoming["web"]
		m.work.preparation.Facts = vm.Facts{Disks: []vm.Disk{{ID: "a", Size: 3 << 20}}}
		path := m.madeDisks()[0].Path
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, make([]byte, 2<<20), 0o600); err != nil {
			t.Fatal(err)
		}
		f, err := os.OpenFile(path, os.O_WRONLY, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if err := f.Sync(); err != nil { // file systems give blocks late
			t.Fatal(err)
		}
		if owed := a.owed(everyone); owed.disk != 1<<20 {
			t.Errorf("%d bytes of the disk are owed", owed.disk)
		}
	})
}

// TestOwedWhileItIsHandedOver: what a guest owes is asked for while its handover changes how it keeps its addresses.
func TestOwedWhileItIsHandedOver(t *testing.T) {
	a := between(t)
	m := comes(t, a)
	m.state.Landing = migration.Adopting
	m.plan.Transfer, m.plan.Mode = "lanes", "postcopy"
	m.offer.Plan = m.plan
	m.work.preparation.Facts.Memory = 1 << 30
	a.incoming[m.plan.ID] = m
	var both sync.WaitGroup
	both.Go(func() {
		if owed := a.owed(everyone); owed.memory != 1<<30 {
			t.Errorf("%+v", owed)
		}
	})
	both.Go(m.keepAddress) // the race detector sees to it
	both.Wait()
}

// TestRoomForTheCopiesOfAll: where there is room for the copy of one guest's memory, another that comes at the same
// time is refused, until the first one runs: both would end on a disk that is full.
func TestRoomForTheCopiesOfAll(t *testing.T) {
	a := between(t)
	free, _, err := a.roomFor("", 0)
	if err != nil {
		t.Fatal(err)
	}
	a.config.MemoryReserve = math.MinInt64 / 2 // this machine may have less memory than disk
	p := goodPreparation()
	p.Plan.Transfer, p.Facts.Memory, p.Touched = "lanes", free, (free-diskReserve)*6/10
	m, _, err := a.admitIncoming(p)
	if err != nil {
		t.Fatal(err)
	}
	second := talk.Offer{Plan: migration.Plan{ID: "m-00000002", Guest: "db", Transfer: "lanes"}, Touched: p.Touched, Facts: p.Facts}
	agenttest.Refused(t, "beside the first one", a.roomForAll(second, everyone), migration.CodeCapacity, "for a copy of its memory", "MiB for guests on their way here")
	agenttest.Refused(t, "the first one itself", a.roomForAll(m.offer, m.order), "")
	second.Plan.Transfer = "qemu-tcp"
	agenttest.Refused(t, "without a copy", a.roomForAll(second, everyone), "")
	second.Plan.Transfer = "lanes"
	m.state = migration.Destination{Landing: migration.Waiting, Loaded: true} // its copy went when QEMU had it, and it may wait for its release for long
	agenttest.Refused(t, "the first one is all here", a.roomForAll(second, everyone), "")
	m.state = migration.Destination{Landing: migration.Waiting}
	agenttest.Refused(t, "it is not", a.roomForAll(second, everyone), migration.CodeCapacity, "for a copy of its memory")
	m.state.Landing = migration.Adopting
	agenttest.Refused(t, "the first one runs", a.roomForAll(second, everyone), "")
}

// TestRoomForTheCopy: a destination whose disk has no room for what our own data path keeps of memory says so before
// anything is copied; QEMU's own transfers, and pages that were never touched, want none.
func TestRoomForTheCopy(t *testing.T) {
	a := between(t)
	free, _, err := a.roomFor("", 0)
	if err != nil {
		t.Fatal(err)
	}
	a.config.MemoryReserve = math.MinInt64 / 2 // this machine may have less memory than disk
	for name, c := range map[string]struct {
		transfer string
		touched  int64
		has      []string // of the refusal
	}{
		"all of it":      {"lanes", free + 1<<30, []string{"MiB of disk free in " + a.config.State, "for a copy of its memory"}},
		"a little of it": {"lanes", 1 << 20, nil},
		"by QEMU":        {"qemu-tcp", free + 1<<30, nil},
		"a lie":          {"lanes", -1 << 50, nil},
	} {
		offer := talk.Offer{Plan: migration.Plan{ID: "m", Guest: "web", Transfer: c.transfer}, Touched: c.touched, Facts: vm.Facts{Memory: free + 1<<30}}
		code := migration.CodeCapacity
		if c.has == nil {
			code = ""
		}
		agenttest.Refused(t, name, a.roomForAll(offer, everyone), code, c.has...)
	}
}
