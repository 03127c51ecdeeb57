package follow

import (
	"net/netip"
	"testing"
	"time"

	"godwit/netstate/mptcp"
	"godwit/vm/guest"
)

// TestStayedBefore: one that did not come the last time, although its peer answers, is waited for until it has been
// told once more, and no longer; beside one that is waited for the first time it costs nothing.
func TestStayedBefore(t *testing.T) {
	setUp(t)
	connect(t, true)
	if err := mptcp.SetLimits(8, 0); err != nil {
		t.Fatal(err)
	}
	deaf, _ := connect(t, true)
	announceTo(t)
	var stayed Stayed
	wait := func(limit time.Duration) guest.Joins {
		t.Helper()
		ask := awaitOf(to, from, 5, 6, 7)
		ask.LimitMS = limit.Milliseconds()
		joins, err := Await(t.Context(), ask, &stayed, new(Moves), func(int, int) {})
		if err != nil {
			t.Fatal(err)
		}
		Tidy()
		return joins
	}
	const long = 3 * time.Minute
	if joins := wait(4 * time.Second); joins.WaitedMS < 4000 || len(joins.Unable) != 1 || joins.Unable[0].Why != guest.WhyUnjoined(4*time.Second) {
		t.Fatalf("the first time: %+v, want that it is waited for", joins)
	}
	joins := wait(long)
	if joins.WaitedMS >= long.Milliseconds() || joins.Joined != 1 || len(joins.Unable) != 1 || joins.Unable[0].Remote.String() != deaf.LocalAddr().String() ||
		joins.Unable[0].Why != guest.WhyUnjoinedAgain {
		t.Errorf("the next time: %+v, want that it is not waited for", joins)
	}
	if joins.WaitedMS < nudgeAfter.Milliseconds() || len(joins.Endpoints) == 0 {
		t.Errorf("the next time: %+v, want that it is told again before", joins)
	}
	connect(t, true) // another, which is as deaf
	if joins := wait(5 * time.Second); joins.WaitedMS < 5000 || len(joins.Unable) != 2 {
		t.Errorf("beside another: %+v, want that this one is waited for", joins)
	}
	if joins := wait(long); joins.WaitedMS >= long.Milliseconds() || len(joins.Unable) != 2 {
		t.Errorf("both once more: %+v", joins)
	}
}

// TestToldBefore: who did not come the last time is told again before the wait ends, also where that was put off, as
// somebody was about to come.
func TestToldBefore(t *testing.T) {
	for name, c := range map[string]struct {
		came, told time.Duration // ago; told 0: never
		pending    int
		want       bool
	}{
		"not told yet":                      {came: time.Minute, want: true},
		"told just now":                     {came: time.Minute, told: toldFor / 10, want: true},
		"told":                              {came: time.Minute, told: 2 * toldFor},
		"told, and somebody is about to":    {came: time.Minute, told: 2 * toldFor, pending: 1, want: true},
		"somebody has come since, not told": {came: 2 * toldFor, told: time.Minute, want: true},
	} {
		now := time.Now()
		w := &watch{start: now.Add(-2 * time.Minute), came: now.Add(-c.came), pending: c.pending,
			behind: map[uint32]mptcp.Connection{7: {Token: 7}}, again: map[uint32]bool{7: true}}
		if c.told > 0 {
			w.told = now.Add(-c.told)
		}
		if got := w.waits(); got != c.want {
			t.Errorf("%s: waits %v", name, got)
		}
	}
}

// TestAnswersSince: a peer that is cut off may come as soon as it is not.
func TestAnswersSince(t *testing.T) {
	for name, c := range map[string]struct {
		change func(s *mptcp.Subflow)
		want   bool
	}{
		"it answers":               {func(*mptcp.Subflow) {}, true},
		"not since the wait began": {func(s *mptcp.Subflow) { s.Silent = 2 * time.Minute }, false},
		"not what was sent last":   {func(s *mptcp.Subflow) { s.Unanswered = 1 }, false},
		"elsewhere":                {func(s *mptcp.Subflow) { s.Local = s.Remote }, false},
		"on one that closes":       {func(s *mptcp.Subflow) { s.State = mptcp.StateCloseWait }, false},
	} {
		sub := mptcp.Subflow{Local: netip.AddrPortFrom(from, 80), Remote: netip.AddrPortFrom(client, 80), State: mptcp.StateEstablished}
		c.change(&sub)
		w := &watch{params: awaitOf(to, from), start: time.Now().Add(-time.Minute)}
		if got := w.answers(mptcp.Connection{Subflows: []mptcp.Subflow{sub}}); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}
