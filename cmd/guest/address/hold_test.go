package address

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"godwit/vm/guest"
)

// held is a guest that has moved, and what is said of it as it is held, at once.
func held(t *testing.T, b *Book) <-chan string {
	t.Helper()
	said := make(chan string, 3*holdMost)
	b.Hold(t.Context(), func(format string, args ...any) { said <- fmt.Sprintf(format, args...) })
	b.hold.after, b.hold.pause = 0, 0
	return said
}

// watched says whether changes are heard of, or will be.
func watched(b *Book) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.hold != nil && (b.hold.changes != nil || b.hold.begin != nil)
}

// hurried has what begins some time after a move begin now; false: it has begun, or is not to.
func hurried(b *Book) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	h := b.hold
	return h.changes == nil && h.begin != nil && h.begin.Reset(0)
}

// wantSaid is that this is said next.
func wantSaid(t *testing.T, said <-chan string, words string) {
	t.Helper()
	select {
	case text := <-said:
		if !strings.Contains(text, words) {
			t.Errorf("said %q, which lacks %q", text, words)
		}
	case <-time.After(time.Minute):
		t.Fatalf("nobody says %q", words)
	}
}

// TestHold: what other programs of a guest take away after a handover comes back by itself, as often as it is not taken
// away on purpose.
func TestHold(t *testing.T) {
	var b Book
	said := held(t, &b)
	home, _ := moved(t, &b)
	before := network(t)
	for n := range holdMost {
		what := [...]string{"ip rule del from 10.8.0.10", "ip -6 rule del from fd08:1::10", "ip addr del 10.8.1.10/24 dev own1", "ip addr add 10.8.0.10/24 dev own0"}[n%4]
		sh(t, what)
		wantSaid(t, said, "had changed what its last move gave it")
		if now := network(t); !slices.Equal(now, before) {
			t.Errorf("%s: it is\n%s\nwant\n%s", what, strings.Join(now, "\n"), strings.Join(before, "\n"))
		}
	}
	wantSaid(t, said, "is left so until the next move")
	if watched(&b) {
		t.Error("it is held on")
	}
	sh(t, "ip rule del from 10.8.0.10")
	for what, end := range map[string]func() error{
		"a lease ends":         func() error { return b.Drop(bare(home)) },
		"a move is called off": func() error { return b.Ready(guest.Configure{MAC: home.MAC}) },
	} {
		if err := end(); err != nil {
			t.Errorf("%s: %v", what, err)
		}
		if watched(&b) {
			t.Errorf("%s, and it is held again", what)
		}
	}
	if _ = b.Tell(home.MAC); !hurried(&b) { // it is refused, as the NIC is not ready
		t.Error("the next move does not begin it again")
	}
}

// TestHoldStale: what was to begin before a move and is late, as that has the lock, does not begin in the midst of it.
func TestHoldStale(t *testing.T) {
	var b Book
	held(t, &b)
	b.hold.after = time.Hour
	moved(t, &b)
	b.mu.Lock()
	h, late := b.hold, b.hold.term
	b.holdLater()
	b.mu.Unlock()
	if c := b.open(h, late); c != nil {
		t.Error("it has begun")
	}
}

// TestHoldFromTheBeginning: what is taken away as the handover ends, before it is heard of, comes back, too.
func TestHoldFromTheBeginning(t *testing.T) {
	var b Book
	said := held(t, &b)
	b.hold.after = time.Hour
	moved(t, &b)
	before := network(t)
	sh(t, "ip rule del from 10.8.0.10")
	b.mu.Lock()
	b.holdIn(b.hold, 0)
	b.mu.Unlock()
	wantSaid(t, said, "packets from ")
	if now := network(t); !slices.Equal(now, before) {
		t.Errorf("it is\n%s\nwant\n%s", strings.Join(now, "\n"), strings.Join(before, "\n"))
	}
}

// TestHoldNot: nothing is looked at before a guest has moved, nor from just before it leaves until the next handover.
// Where that never comes, as a move has failed, it begins by itself.
func TestHoldNot(t *testing.T) {
	var b Book
	said := held(t, &b)
	b.holdSoon()
	if watched(&b) {
		t.Error("a guest that has not moved is held")
	}
	home, next := moved(t, &b)
	for what, begin := range map[string]func() error{
		"it is told":       func() error { _ = b.Tell(home.MAC); return nil }, // it is refused, as the NIC is not ready
		"it is configured": func() error { return second(b.Configure(next)) },
	} {
		b.mu.Lock()
		b.holdSoon()
		b.mu.Unlock()
		if !watched(&b) {
			t.Errorf("before %s it is not held", what)
		}
		if err := begin(); err != nil {
			t.Fatal(err)
		}
		sh(t, "ip rule del from 10.8.1.10")
		if !hurried(&b) {
			t.Fatalf("%s, and held, or never again", what)
		}
		wantSaid(t, said, "packets from 10.8.1.10 are led out of own1 again")
	}
}

// TestHoldEnds: with its context.
func TestHoldEnds(t *testing.T) {
	var b Book
	ctx, cancel := context.WithCancel(t.Context())
	b.Hold(ctx, t.Logf)
	moved(t, &b)
	cancel()
	for end := time.Now().Add(time.Minute); watched(&b); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("it is held on")
		}
	}
}
