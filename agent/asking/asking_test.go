package asking

import (
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"godwit/agent/detour"
	"godwit/vm/guest"
)

// TestListsWhileItIsKnown: however long a lease lasts and how much it carries, the guest's connections are listed
// before its kernel has forgotten which have ended, 10 s after a reset. A look may take a while.
func TestListsWhileItIsKnown(t *testing.T) {
	const most = 9 * time.Second
	for _, carried := range []int{1, longList, longList + 1, 100000} {
		for _, work := range []time.Duration{0, time.Millisecond, 30 * time.Millisecond} {
			synctest.Test(t, func(t *testing.T) {
				g, d, listed, longest := &Asking{}, detour.Detour{ID: "m-00000001", Up: time.Now()}, time.Now(), time.Duration(0)
				for range 3600 {
					if g.Again(d) {
						g.StillNeeds(d)
						if g.ListsAgain(d, carried) {
							longest, listed = max(longest, time.Since(listed)), time.Now()
						}
					}
					time.Sleep(time.Second + work)
				}
				if longest = max(longest, time.Since(listed)); longest > most {
					t.Errorf("%d connections, a look takes %v: they were not listed for %v, want %v at most", carried, work, longest, most)
				}
			})
		}
	}
}

// TestSubnetAgentIsAskedSeldom: one that is away is asked a few times, far apart.
func TestSubnetAgentIsAskedSeldom(t *testing.T) {
	g := &Asking{}
	at, tries := time.Unix(1000, 0), 0
	for range 3600 {
		if at = at.Add(time.Second); g.MayAsk(at) {
			g.Asked(at)
			tries++
			if g.MayAsk(at.Add(standPause - 1)) {
				t.Fatal("it is asked again at once")
			}
		}
	}
	if tries != standTries {
		t.Errorf("asked %d times in an hour", tries)
	}
}

// TestHomesAreAskedMoreAndMoreSeldom: one that is gone for good costs little, and one that may send by now is asked
// soon.
func TestHomesAreAskedMoreAndMoreSeldom(t *testing.T) {
	var g Asking
	at := time.Unix(1000, 0)
	for i, want := range []time.Duration{homesPause, 2 * homesPause, 4 * homesPause, 8 * homesPause, 16 * homesPause, 32 * homesPause, homesRarely, homesRarely} {
		if !g.MayAskHomes(at) {
			t.Fatalf("time %d: not asked", i)
		}
		g.AskedHomes(at)
		if g.MayAskHomes(at.Add(want - 1)) {
			t.Errorf("time %d: asked again before %v have passed", i, want)
		}
		at = at.Add(want)
	}
	for i, want := range []time.Duration{homesSoon, 2 * homesSoon, 4 * homesSoon, homesPause, homesPause} {
		g.HomesAreUnknown(at)
		if g.MayAskHomes(at.Add(want-1)) || !g.MayAskHomes(at.Add(want)) {
			t.Errorf("time %d: one that may send by now is not asked after %v", i, want)
		}
		at = at.Add(want)
		g.AskedHomes(at)
	}
}

// TestQuiet: datagrams that come no more are no use of an address, once none has come for a while.
func TestQuiet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, addr := &Asking{}, netip.MustParseAddr("10.1.1.20")
		if !a.IsQuiet(addr, 0) || a.IsQuiet(addr, 7) || a.InUse(guest.Users{}) || !a.InUse(guest.Users{UDPCount: 7}) || !a.InUse(guest.Users{TCP: 1, UDPCount: 7}) {
			t.Error("what was never used is, or what is used is not")
		}
		time.Sleep(udpQuiet)
		if !a.IsQuiet(addr, 7) || a.InUse(guest.Users{UDPCount: 7}) {
			t.Error("it is in use after a while in which nothing came")
		}
		if a.IsQuiet(addr, 8) || !a.InUse(guest.Users{UDPCount: 8}) {
			t.Error("it is not in use as another comes")
		}
	})
}

// TestQuietOfNewProgram: a guest's program that was started again counts datagrams anew. What was used a moment ago is
// for as long as it would have been.
func TestQuietOfNewProgram(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, addr := &Asking{}, netip.MustParseAddr("10.1.1.20")
		a.IsQuiet(addr, 7)
		a.InUse(guest.Users{UDPCount: 7})
		time.Sleep(udpQuiet - 1)
		if a.IsQuiet(addr, 0) || !a.InUse(guest.Users{}) {
			t.Error("it is not in use as it is counted anew")
		}
		time.Sleep(udpQuiet - 1)
		if a.IsQuiet(addr, 0) || !a.InUse(guest.Users{}) {
			t.Error("it is not in use soon after that")
		}
		time.Sleep(time.Nanosecond)
		if !a.IsQuiet(addr, 0) || a.InUse(guest.Users{}) {
			t.Error("it is in use after a while in which nothing came")
		}
	})
}

// TestDeaf: a guest that did not answer is left alone for a while.
func TestDeaf(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &Asking{}
		if a.IsDeaf() || !a.LooksAgain() || a.LooksAgain() {
			t.Error("at first it is asked, and not twice")
		}
		if a.LeaveAlone(); !a.IsDeaf() {
			t.Error("it is asked at once")
		}
		time.Sleep(max(DeafPause, udpQuiet))
		if a.IsDeaf() || !a.LooksAgain() {
			t.Error("it is not asked any more")
		}
	})
}

// TestToldAgainAFewTimes: all of a guest's clients are told with those that were out of reach. So it is done five times
// in a migration, not soon after it was done, and one that did not come is said to refuse the second time.
func TestToldAgainAFewTimes(t *testing.T) {
	const id, other = "m-00000001", "m-00000002"
	var g Asking
	at := time.Unix(1000, 0)
	if !g.UntoldSince(id).IsZero() {
		t.Error("told before")
	}
	for try, took := range []time.Duration{0, time.Second, 5 * time.Second, 0, 0} {
		if !g.MayTellAgain(id, at) {
			t.Fatalf("time %d: not yet", try)
		}
		client := netip.AddrPortFrom(netip.MustParseAddr("198.18.0.9"), uint16(try/2))
		away := guest.Unable{Remote: netip.AddrPortFrom(client.Addr(), 9), Why: guest.WhyAway}
		if refuse := g.ToldAgain(id, at, at.Add(took), []guest.Unable{{Remote: client}, away}); len(refuse) != try%2 {
			t.Errorf("time %d: %+v refuse", try, refuse)
		}
		if since := g.UntoldSince(id); !since.Equal(at.Add(againIn)) {
			t.Errorf("time %d: untold since %v", try, since.Sub(at))
		}
		at = at.Add(took + max(5*time.Second, 10*took))
		if g.MayTellAgain(id, at.Add(-1)) {
			t.Errorf("time %d took %v, and is repeated within ten times that", try, took)
		}
	}
	if g.MayTellAgain(id, at.Add(time.Hour)) || !g.MayTellAgain(other, at) || !g.UntoldSince(other).IsZero() {
		t.Error("a sixth time, or none of another migration")
	}
	if g.NobodyIsTold(at, at.Add(time.Second)); g.MayTellAgain(other, at.Add(restPart*time.Second)) || !g.MayTellAgain(other, at.Add((restPart+1)*time.Second)) {
		t.Error("a look that took a second, and told nobody, is not repeated 10 s later")
	}
	at = at.Add(time.Hour)
	if g.NobodyIsAway(other); g.MayTellAgain(other, at) || !g.MayTellAgain("m-00000003", at) {
		t.Error("nobody is away any more of one migration, and not of another")
	}
}
