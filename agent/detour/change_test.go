package detour

import (
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"testing"
	"time"

	"godwit/agent/config"
	"godwit/agent/statefile"
	"godwit/internal/need"
	"godwit/netstate"
	"godwit/netstate/netns"
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

// TestEndedMeanwhile: of a detour that ended since it was looked up, whose addresses were to come home or to be sent away again, nothing
// is led anywhere, and who asks is told so.
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
