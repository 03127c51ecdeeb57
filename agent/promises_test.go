package agent

import (
	"fmt"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// promiser is an agent that knows of no guests.
func promiser() *Agent {
	return &Agent{guests: &guests{byName: map[string]*Guest{}}, detours: &detours{byID: map[string]*detour{}}, incoming: map[string]*incoming{}}
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
