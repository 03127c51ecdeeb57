package addresses

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"godwit/agent/config"
	"godwit/migration"
)

// ofRome is the book of a host whose guests have the addresses of has, each that of the guest named.
func ofRome(has map[netip.Addr]string) *Book {
	return New(&config.Config{Host: "rome", Site: "rome", Network: config.Network{
		Bridge: "br0", V4: netip.MustParsePrefix("10.2.1.0/24"), Gateway4: netip.MustParseAddr("10.2.1.1"),
	}}, func() map[netip.Addr]string {
		taken := map[netip.Addr]string{}
		for addr, guest := range has {
			taken[addr] = guest
		}
		return taken
	})
}

// refused checks that err is a problem of code address with word in it; no word: that there is none.
func refused(t *testing.T, name string, err error, word string) {
	t.Helper()
	var problem *migration.Problem
	switch {
	case word == "" && err == nil:
	case word == "" || !errors.As(err, &problem) || problem.Code != migration.CodeAddress || !strings.Contains(problem.Text, word):
		t.Errorf("%s: %v, want %q", name, err, word)
	}
}

// TestPromises: of guests that are checked at the same time each gets another address.
func TestPromises(t *testing.T) {
	b, addr := ofRome(nil), netip.MustParseAddr("10.2.1.10")
	var got atomic.Int32
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			if b.Promise(addr, fmt.Sprint("guest", i)) == nil {
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
	b, addr := ofRome(nil), netip.MustParseAddr("10.2.1.10")
	other := addr.Next()
	for _, p := range []netip.Addr{addr, other, addr} { // asking again is no conflict
		if err := b.Promise(p, "web"); err != nil {
			t.Fatal(err)
		}
	}
	if err := b.Promise(addr, "db"); err == nil || !strings.Contains(err.Error(), "guest web") {
		t.Fatalf("promised twice: %v", err)
	}
	b.Release("db", addr) // not its own
	if err := b.Promise(addr, "db"); err == nil {
		t.Fatal("another guest's promise was given up")
	}
	b.Release("web", other)
	if err := b.Promise(other, "db"); err != nil {
		t.Fatal(err)
	}
	if err := b.Promise(addr, "db"); err == nil {
		t.Fatal("what the guest has beside that was given up, too")
	}
	b.promised[addr] = promise{"web", time.Now().Add(-time.Second)} // its time is up
	if err := b.Promise(addr, "db"); err != nil {
		t.Fatal(err)
	}
}

// TestPromiseNext: next addresses are promised all together or not at all, and those that the guest has here already
// are its own.
func TestPromiseNext(t *testing.T) {
	one, two := netip.MustParseAddr("10.2.1.10"), netip.MustParseAddr("10.2.1.11")
	has := map[netip.Addr]string{}
	b := ofRome(has)
	plan := migration.Plan{Guest: "web", Network: "mptcp", Next: []migration.Address{{Prefix: netip.PrefixFrom(one, 24)}, {Prefix: netip.PrefixFrom(two, 24)}}}
	has[two] = "db"
	refused(t, "one is another's", b.PromiseNext(plan), "next address 10.2.1.11: guest db has it, or was promised it, on rome since the check; try again for another")
	refused(t, "then the other is nobody's", b.Promise(one, "mail"), "")
	has[two] = "web"
	refused(t, "one is promised to another", b.PromiseNext(plan), "guest mail has it, or was promised it")
	b.Release("mail", netip.Addr{})
	refused(t, "its own", b.PromiseNext(plan), "")
	refused(t, "it is kept for it", b.Promise(one, "mail"), "guest web of this host has it")
	has[two], plan.Guest, plan.Network = "db", "mail", "tunnel"
	refused(t, "a guest that keeps its addresses gets none", b.PromiseNext(plan), "")
}

// TestClaim: who claims an address sees those of guests here, and of others' promises, and not its own; nobody is
// promised one meanwhile.
func TestClaim(t *testing.T) {
	held, promised, own := netip.MustParseAddr("10.2.1.10"), netip.MustParseAddr("10.2.1.11"), netip.MustParseAddr("10.2.1.12")
	has := map[netip.Addr]string{held: "db"}
	b := ofRome(has)
	refused(t, "another's", b.Promise(promised, "mail"), "")
	refused(t, "its own", b.Promise(own, "web"), "")
	waits := make(chan error, 1)
	err := b.Claim("web", func(others map[netip.Addr]string) error {
		if len(others) != 2 || others[held] != "db" || others[promised] != "mail" {
			t.Errorf("others have %v", others)
		}
		free := netip.MustParseAddr("10.2.1.13")
		go func() { waits <- b.Promise(free, "db") }()
		has[free] = "web"
		return nil
	})
	refused(t, "claim", err, "")
	refused(t, "what was claimed", <-waits, "guest web of this host has it")
}
