package follow

import (
	"context"
	"io"
	"net/netip"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"godwit/internal/need"
	"godwit/netstate/mptcp"

	"github.com/vishvananda/netlink"
)

// TestLeft: which subflows are taken for those of a client that is somewhere else now.
func TestLeft(t *testing.T) {
	const since = 2 * time.Second // it came from somewhere else
	sub := func(place byte, port uint16, unanswered uint8, silent time.Duration) mptcp.Subflow {
		return mptcp.Subflow{Local: netip.MustParseAddrPort("10.1.1.10:80"), State: mptcp.StateEstablished, FullyEstablished: true,
			Remote:  netip.AddrPortFrom(netip.AddrFrom4([4]byte{198, 18, place, 10}), port),
			Figures: mptcp.Figures{Unanswered: unanswered, Silent: silent}}
	}
	half, closing := sub(1, 9, 0, 0), sub(0, 8, 6, time.Hour)
	half.FullyEstablished, closing.State = false, mptcp.StateFinWait1
	for name, c := range map[string]struct {
		subflows []mptcp.Subflow
		want     []uint16 // remote ports
	}{
		"moved":                            {[]mptcp.Subflow{sub(0, 1, deafAfter, since+1), sub(1, 2, 0, 0)}, []uint16{1}},
		"moved, with two subflows there":   {[]mptcp.Subflow{sub(0, 1, 3, since+1), sub(0, 2, 4, since+1), sub(1, 3, 0, 0)}, []uint16{1, 2}},
		"heard since":                      {[]mptcp.Subflow{sub(0, 1, 3, since-1), sub(1, 2, 0, 0)}, nil},
		"a segment was lost":               {[]mptcp.Subflow{sub(0, 1, deafAfter-1, since+1), sub(1, 2, 0, 0)}, nil},
		"the other is at the same place":   {[]mptcp.Subflow{sub(0, 1, 6, time.Hour), sub(0, 2, 0, 0)}, nil},
		"the other is silent, too":         {[]mptcp.Subflow{sub(0, 1, 6, time.Hour), sub(1, 2, 1, 0)}, nil},
		"the other only begins":            {[]mptcp.Subflow{sub(0, 1, 6, time.Hour), half}, nil},
		"it closes already":                {[]mptcp.Subflow{closing, sub(1, 2, 0, 0)}, nil},
		"idle ones are not known to be so": {[]mptcp.Subflow{sub(0, 1, 0, time.Hour), sub(1, 2, 0, 0)}, nil},
	} {
		var got []uint16
		for _, s := range left(mptcp.Connection{Token: 7, Subflows: c.subflows}, since) {
			got = append(got, s.Remote.Port())
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

// TestCrowdIsLookedAtOnceItHasCome: lists of thousands of sockets would take the time of those who still come.
func TestCrowdIsLookedAtOnceItHasCome(t *testing.T) {
	const (
		listing = 2 * time.Second
		first   = movedFor + movedLook - time.Millisecond // of a crowd without end
		again   = listing + movedRest*listing
	)
	for name, c := range map[string]struct {
		come  int // one each ms
		lists []time.Duration
	}{
		"one":             {1, []time.Duration{movedLook}},
		"some":            {movedAtOnce - 1, []time.Duration{movedLook}},
		"a crowd":         {5000, []time.Duration{5*time.Second + movedLook - time.Millisecond}},
		"one without end": {40000, []time.Duration{first, first + again, first + 2*again}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				events, done := make(chan mptcp.Event, c.come), make(chan error)
				var m Moves
				var lists []time.Duration
				begin := time.Now()
				go func() {
					done <- m.follow(ctx, events, func() ([]mptcp.Connection, error) {
						lists = append(lists, time.Since(begin))
						time.Sleep(listing)
						return nil, nil
					})
				}()
				for token := range uint32(c.come) {
					events <- mptcp.Event{Kind: mptcp.SubEstablished, Token: token}
					time.Sleep(time.Millisecond)
				}
				time.Sleep(time.Minute)
				cancel()
				close(events)
				if <-done; !slices.Equal(lists, c.lists) {
					t.Errorf("looked after %v, want %v", lists, c.lists)
				}
			})
		})
	}
}

// TestMovesForgets: what is looked at is bounded, in number and in time.
func TestMovesForgets(t *testing.T) {
	now := time.Unix(100, 0)
	m := &Moves{joined: map[uint32]arrival{}}
	for token := range uint32(2 * movedAtOnce) {
		m.take(mptcp.Event{Kind: mptcp.SubEstablished, Token: token}, now)
	}
	if len(m.joined) != movedAtOnce {
		t.Errorf("%d are looked at, want %d", len(m.joined), movedAtOnce)
	}
	var all []mptcp.Connection
	for token := range uint32(10) {
		if token == 5 {
			continue // it has ended
		}
		c := mptcp.Connection{Token: token, Subflows: []mptcp.Subflow{{Remote: netip.MustParseAddrPort("198.18.0.1:1")}}}
		if token%2 == 1 {
			c.Subflows = append(c.Subflows, mptcp.Subflow{Remote: netip.MustParseAddrPort("198.18.1.1:1")})
		}
		all = append(all, c)
	}
	m.dead(all, now.Add(time.Second))
	if len(m.joined) != 4 { // 1, 3, 7, 9
		t.Errorf("%d are looked at, want those that have subflows from two addresses", len(m.joined))
	}
	if m.dead(all, now.Add(movedFor+1)); len(m.joined) != 0 {
		t.Errorf("%d are looked at after %v", len(m.joined), movedFor)
	}
}

// TestWhoLeft: when a client had left where it was is known of those of which a subflow was ended: it was heard there
// last, or came from somewhere else.
func TestWhoLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, now := &Moves{left: map[uint32]time.Time{}}, time.Now()
		gone := func(silent ...time.Duration) (out []mptcp.Subflow) {
			for _, d := range silent {
				out = append(out, mptcp.Subflow{Figures: mptcp.Figures{Silent: d}})
			}
			return out
		}
		came := now.Add(-2 * time.Second)
		m.joined = map[uint32]arrival{1: {came, came}}
		two := []mptcp.Subflow{{Remote: netip.MustParseAddrPort("198.18.0.1:1"), State: mptcp.StateEstablished, Figures: mptcp.Figures{Unanswered: deafAfter, Silent: 5 * time.Second}},
			{Remote: netip.MustParseAddrPort("198.18.1.1:1"), State: mptcp.StateEstablished, FullyEstablished: true}}
		m.dead([]mptcp.Connection{{Token: 1, Subflows: two}}, now)
		m.leaves(1, gone(9*time.Second, 7*time.Second), now)
		m.leaves(2, nil, now)
		time.Sleep(time.Second)
		if since, left := m.since(1); !left || since != 4*time.Second {
			t.Errorf("it had left %v ago, %v; want 4s, one before it came", since, left)
		}
		if _, left := m.since(2); left {
			t.Error("one of which nothing was ended is said to have left")
		}
		for token := range uint32(2 * movedAtOnce) {
			m.leaves(10+token, gone(time.Second), now)
		}
		if len(m.left) > movedAtOnce {
			t.Errorf("%d are kept, want %d at most", len(m.left), movedAtOnce)
		}
	})
}

// TestLastOfAll: when the last connection came is known by the address that it came to, of the latest addresses.
func TestLastOfAll(t *testing.T) {
	addr := func(n int) netip.AddrPort { return netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 2, 0, byte(n)}), 80) }
	m, now := &Moves{last: map[netip.Addr]time.Time{}}, time.Now()
	m.note(mptcp.Event{Kind: mptcp.SubEstablished, Local: addr(1)}, now.Add(-2*time.Hour))
	m.note(mptcp.Event{Kind: mptcp.SubEstablished, Local: addr(1)}, now.Add(-time.Hour))
	m.note(mptcp.Event{Kind: mptcp.Closed, Local: addr(1)}, now)
	if since := m.Since([]netip.Addr{addr(1).Addr(), addr(2).Addr()}).Round(time.Minute); since != time.Hour {
		t.Errorf("%v ago, want an hour", since)
	}
	if since := m.Since([]netip.Addr{addr(2).Addr()}); since != 0 {
		t.Errorf("nobody came there, %v ago", since)
	}
	for n := range 2 * movedAtOnce {
		m.note(mptcp.Event{Kind: mptcp.SubEstablished, Local: addr(n + 2)}, now.Add(-time.Minute))
	}
	if last := 2*movedAtOnce + 1; len(m.last) > movedAtOnce || m.Since([]netip.Addr{addr(last).Addr()}).Round(time.Minute) != time.Minute {
		t.Errorf("%d addresses are known, the last %v ago", len(m.last), m.Since([]netip.Addr{addr(last).Addr()}))
	}
}

// TestMovedClient: a client is cut off where it was, and comes from somewhere else. What leads to
// where it was goes soon, and what was sent there comes by the other way.
func TestMovedClient(t *testing.T) {
	setUp(t)
	need.Program(t, "nft")
	elsewhere := netip.MustParseAddr("10.9.1.10")
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		t.Fatal(err)
	}
	addr, err := netlink.ParseAddr(elsewhere.String() + "/32")
	if err != nil {
		t.Fatal(err)
	}
	if err := netlink.AddrReplace(lo, addr); err != nil {
		t.Fatal(err)
	}
	near, far := connect(t, true)
	ctx, cancel := context.WithCancel(t.Context())
	watched := make(chan error, 1)
	m := &Moves{}
	go func() { watched <- m.Watch(ctx) }()
	defer func() { cancel(); <-watched }()
	for listens := false; !listens; time.Sleep(time.Millisecond) {
		m.mu.Lock()
		listens = m.last != nil
		m.mu.Unlock()
	}

	nft(t, "add table ip moved; add chain ip moved in { type filter hook input priority 0; }; "+
		"add rule ip moved in ip saddr "+client.String()+" drop; add rule ip moved in ip daddr "+client.String()+" drop")
	t.Cleanup(func() { nft(t, "delete table ip moved") })
	const sent = 64 << 10
	if _, err := far.Write(make([]byte, sent)); err != nil {
		t.Fatal(err)
	}
	if err := mptcp.AddEndpoint(mptcp.Endpoint{ID: 9, Addr: elsewhere, Flags: mptcp.FlagSubflow}); err != nil {
		t.Fatal(err)
	}
	begun := time.Now()
	near.SetReadDeadline(begun.Add(20 * time.Second)) //nolint:errcheck // it has one
	if _, err := io.CopyN(io.Discard, near, sent); err != nil {
		t.Fatalf("what was sent to where the client was: %v", err)
	}
	t.Logf("all came after %v", time.Since(begun).Round(10*time.Millisecond))
	for until := begun.Add(8 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		connections, err := mptcp.Connections()
		if err != nil {
			t.Fatal(err)
		}
		if !slices.ContainsFunc(connections, func(c mptcp.Connection) bool {
			return slices.ContainsFunc(c.Subflows, func(s mptcp.Subflow) bool {
				return s.Local.Addr() == from && s.Remote.Addr() == client && s.State == mptcp.StateEstablished
			})
		}) {
			break
		}
		if time.Now().After(until) {
			t.Fatalf("the subflow to where the client was is there after %v", time.Since(begun))
		}
	}
	t.Logf("the subflow to where it was is gone after %v", time.Since(begun).Round(10*time.Millisecond))
}

func nft(t *testing.T, rules string) {
	t.Helper()
	command := exec.Command("nft", "-f", "-")
	command.Stdin = strings.NewReader(rules)
	if said, err := command.CombinedOutput(); err != nil {
		t.Errorf("nft: %v: %s", err, said)
	}
}
