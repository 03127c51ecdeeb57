package detour

import (
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"godwit/agent/config"
	"godwit/agent/statefile"
	"godwit/internal/need"
	"godwit/netstate"
	"godwit/netstate/netns"
	"godwit/netstate/tunnel"
)

// TestSlowDiskHoldsUpNobody: what others ask is answered while a change waits for the disk, and what they change
// meanwhile goes with the next write. A change that is made is on the disk.
func TestSlowDiskHoldsUpNobody(t *testing.T) {
	need.Root(t)
	path := filepath.Join(t.TempDir(), "detours.json")
	s := New(path, config.Network{Bridge: "no-such-bridge"}, map[string]*Detour{})
	change := func(ids ...string) chan error {
		done := make(chan error, 1)
		go func() {
			done <- netns.Once(func() error {
				return s.Change(ids[0], func(all map[string]*Detour) {
					for _, id := range ids {
						all[id] = &Detour{ID: id, Guest: id}
					}
				})
			})
		}()
		return done
	}
	s.writing.Lock() // as while the disk takes its time
	first := change("m-00000001")
	second := change("m-00000002", "m-00000003")
	for seen := 0; seen < 3; {
		answer := make(chan int, 1)
		go func() {
			if err := s.Flip("m-00000009", true); err == nil { // no such detour
				t.Error("flipped what is not there")
			}
			answer <- len(s.List(""))
		}()
		select {
		case seen = <-answer:
		case <-time.After(10 * time.Second):
			s.writing.Unlock()
			t.Fatal("a flip waits for the disk")
		}
	}
	for _, done := range []chan error{first, second} {
		select {
		case err := <-done:
			t.Errorf("a change was done before it was written: %v", err)
		default:
		}
	}
	s.writing.Unlock()
	if err := errors.Join(<-first, <-second); err != nil {
		t.Fatal(err)
	}
	var on map[string]*Detour
	if err := statefile.Read(path, &on); err != nil || len(on) != 3 || len(s.stale) != 0 {
		t.Errorf("on the disk %v, %v; stale %v", on, err, s.stale)
	}
}

// TestUnwrittenIsOwed: a change that the disk did not take is owed until it takes one of that guest.
func TestUnwrittenIsOwed(t *testing.T) {
	need.Root(t)
	dir := filepath.Join(t.TempDir(), "state")
	s := New(filepath.Join(dir, "detours.json"), config.Network{}, map[string]*Detour{})
	change := func(guest string) error {
		return netns.Once(func() error { return s.Change(guest, func(map[string]*Detour) {}) })
	}
	if err := os.WriteFile(dir, nil, 0o600); err != nil { // a file where its directory should be
		t.Fatal(err)
	}
	if err := change("web"); !errors.Is(err, ErrUnwritten) || s.stale["web"] == 0 {
		t.Fatalf("a change that was not written: %v; owed %v", err, s.stale)
	}
	if err := os.Remove(dir); err != nil {
		t.Fatal(err)
	}
	if err := change("web"); err != nil || len(s.stale) != 0 {
		t.Errorf("its next change: %v; owed %v", err, s.stale)
	}
}

// TestEndedMeanwhile: of a detour that ended since it was looked up, whose addresses were to come home or to be sent
// away again, nothing is led anywhere, and who asks is told so.
func TestEndedMeanwhile(t *testing.T) {
	away := []netstate.Away{{Addr: netip.MustParseAddr("10.1.1.20"), Active: true}}
	all := map[string]*Detour{"m-00000002": {ID: "m-00000002", Guest: "web", Away: away}}
	if bringHome(all, all["m-00000001"]) == nil {
		t.Error("what has ended brought something home")
	}
	sendBack(all, all["m-00000001"])
	if other := all["m-00000002"]; len(all) != 1 || len(other.Away) != 1 || len(other.Visiting) != 0 {
		t.Errorf("%+v", other)
	}
}

// TestRemovedIfOver: a detour of which somebody says that it goes on stays, with its tunnel; one that is not there is gone.
func TestRemovedIfOver(t *testing.T) {
	dir := t.TempDir()
	log := filepath.Join(dir, "gwt-1.log") // of its tunnel, whose end would take it along
	if err := os.WriteFile(log, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	s := New(filepath.Join(dir, "detours.json"), config.Network{}, map[string]*Detour{"m-00000001": {ID: "m-00000001", Guest: "web", Tunnel: tunnel.Config{Name: "gwt-1", Dir: dir}}})
	for id, there := range map[string]bool{"m-00000001": true, "m-00000002": false} {
		gone, err := s.RemoveIf(t.Context(), id, func(*Detour) bool { return false })
		if _, stays := s.Get(id); gone == there || stays != there || err != nil {
			t.Errorf("%s: gone %v, stays %v, %v", id, gone, stays, err)
		}
	}
	if _, err := os.Stat(log); err != nil {
		t.Errorf("its tunnel has ended: %v", err)
	}
}

// TestFollowIsOwed: what the kernel does not take of a flip, or of what it is to follow, is told; the latter is owed.
func TestFollowIsOwed(t *testing.T) {
	need.Root(t)
	s := New(filepath.Join(t.TempDir(), "detours.json"), config.Network{Bridge: "no-such-bridge", LAN: "no-such-lan"}, map[string]*Detour{
		"m-00000001": {ID: "m-00000001", Guest: "web", Away: []netstate.Away{{Addr: ours, Tunnel: "gwt-00000001"}}},
	})
	for _, active := range []bool{true, false} {
		err := netns.Once(func() error { return s.Flip("m-00000001", active) })
		if d := s.byID["m-00000001"]; err == nil || d.Led != active || d.Away[0].Active != active {
			t.Errorf("flipped (%v): %+v, %v", active, d, err)
		}
	}
	if len(s.stale) > 0 {
		t.Errorf("owed: %v", s.stale)
	}
	if err := netns.Once(func() error { return s.Follow("web") }); err == nil || s.stale["web"] == 0 {
		t.Errorf("%v, owed %v", err, s.stale)
	}
}

// TestEndsInTheKernel: of a detour that has ended the kernel has nothing more, which is told where it could not be
// done; what leads changes with it.
func TestEndsInTheKernel(t *testing.T) {
	const name = "gw-test-ends"
	run, s := awayIn(t, name)
	leads := func() string {
		return run("ip rule show pref 45; ip route show table all proto 0x67; ip neigh show proxy")
	}
	if leads() == "" || s.stood["web"].Empty() {
		t.Fatalf("it leads nothing: %+v", s.stood)
	}
	if err := netns.Do(name, func() error {
		return s.Change("web", func(all map[string]*Detour) { all["m-00000001"].Away[0].Addr = ours.Next() })
	}); err != nil || s.stood["web"].Away[0].Addr != ours.Next() || !strings.Contains(leads(), ours.Next().String()) {
		t.Errorf("%v: %+v stands, %s", err, s.stood, leads())
	}
	if err := netns.Do(name, func() error { return s.Remove(t.Context(), "m-00000001") }); err != nil || leads() != "" || len(s.stood) != 0 {
		t.Errorf("%v: left %s, %v", err, leads(), s.stood)
	}
}
