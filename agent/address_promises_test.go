package agent

import (
	"fmt"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"godwit/agent/config"
	"godwit/agent/detour"
	"godwit/migration"
)

// promiser is an agent that knows of no guests.
func promiser() *Agent {
	return &Agent{guests: &guests{byName: map[string]*Guest{}}, detours: detour.New("", config.Network{}, map[string]*detour.Detour{}), incoming: map[string]*incoming{}}
}

// TestPromises: of guests that are checked at the same time each gets another address.
func TestPromises(t *testing.T) {
	a, addr := promiser(), netip.MustParseAddr("10.2.1.10")
	var got atomic.Int32
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			if a.promise(addr, fmt.Sprint("guest", i)) == nil {
				got.Add(1)
			}
		})
	}
	all.Wait()
	if got.Load() != 1 {
		t.Fatalf("%s was promised to %d guests", addr, got.Load())
	}
}

func TestPromiseEnds(t *testing.T) {
	a, addr := promiser(), netip.MustParseAddr("10.2.1.10")
	other := addr.Next()
	for _, p := range []netip.Addr{addr, other, addr} { // asking again is no conflict
		if err := a.promise(p, "web"); err != nil {
			t.Fatal(err)
		}
	}
	if err := a.promise(addr, "db"); err == nil || !strings.Contains(err.Error(), "guest web") {
		t.Fatalf("promised twice: %v", err)
	}
	a.promised.release("db", addr) // not its own
	if err := a.promise(addr, "db"); err == nil {
		t.Fatal("another guest's promise was given up")
	}
	a.promised.release("web", other)
	if err := a.promise(other, "db"); err != nil {
		t.Fatal(err)
	}
	a.promised.by[addr] = promise{"web", time.Now().Add(-time.Second)} // its time is up
	if err := a.promise(addr, "db"); err != nil {
		t.Fatal(err)
	}
}

// TestPromiseWhileAMigrationEnds: an address is promised to one guest while the migration of
// another ends; neither waits for the other for ever.
func TestPromiseWhileAMigrationEnds(t *testing.T) {
	a := promiser()
	const times = 20000
	done := make(chan struct{}, 2)
	go func() {
		for range times {
			if err := a.promise(netip.MustParseAddr("10.1.1.20"), "web"); err != nil {
				t.Error(err)
			}
		}
		done <- struct{}{}
	}()
	go func() {
		for range times {
			a.mu.Lock()
			a.incoming["m-00000001"] = &incoming{plan: migration.Plan{Guest: "db"}}
			a.mu.Unlock()
			a.forgetIncoming("m-00000001")
		}
		done <- struct{}{}
	}()
	for range 2 {
		select {
		case <-done:
		case <-time.After(30 * time.Second):
			t.Fatal("they wait for each other")
		}
	}
}
