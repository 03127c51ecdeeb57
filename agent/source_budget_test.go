package agent

import (
	"context"
	"errors"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"godwit/agent/agenttest"
	"godwit/agent/care"
	"godwit/agent/config"
	"godwit/agent/guests"
	"godwit/agent/peer"
	"godwit/agent/record"
	"godwit/agent/sample"
	"godwit/migration"
	"godwit/policy"
	"godwit/vm"
)

// budgeted is a migration of mode and budget over one path of 100 Mbit/s and so long a round trip.
func budgeted(t *testing.T, mode string, budget, rtt time.Duration) (*outgoing, config.Neighbour) {
	t.Helper()
	up := config.Uplink{Name: "public", Address: loopback, Carries: "both", Rate: 100e6}
	n := config.Neighbour{Host: "rome", Uplinks: []config.Uplink{up}}
	a := bareAgent(t, &config.Config{Host: "paris", Uplinks: []config.Uplink{up}, Peers: []config.Neighbour{n}})
	a.ctx = t.Context()
	plan := migration.Plan{ID: "m-00000001", Guest: "web", From: "paris", To: "rome", Mode: mode, Transfer: "lanes", Downtime: budget}
	return &outgoing{a: a, guest: guests.New(care.Held{}, nil), link: peer.NewLink(nil, "rome", 1, nil), plan: plan, work: &sourceWork{rtt: rtt}, rec: record.New("paris", plan, time.Now())}, n
}

// endless is a QEMU whose rounds get no shorter.
type endless struct {
	gone
	looks int64
}

func (e *endless) Progress(context.Context) (vm.Progress, error) {
	e.looks++ // each 10 ms
	return vm.Progress{Status: vm.Active, Rounds: 2 + e.looks/100, Remaining: 50e6, Transferred: e.looks * 100e3}, nil
}

// cutOff is a QEMU of which nothing moves any more.
type cutOff struct{ gone }

func (cutOff) Progress(context.Context) (vm.Progress, error) {
	return vm.Progress{Status: vm.Active, Rounds: 2, Remaining: 400e3, Transferred: 1e6}, nil
}

// TestStandstillSaysWhatIsLeft: a copy of which little is left, and nothing moves, waits for that little.
func TestStandstillSaysWhatIsLeft(t *testing.T) {
	m, _ := budgeted(t, "precopy", 300*time.Millisecond, 20*time.Millisecond)
	m.plan.Transfer, m.guest = "qemu-tcp", guests.New(care.Held{}, cutOff{})
	idle := policy.Standstill{Patience: time.Nanosecond}
	if _, look, err := m.lookAtCopy(t.Context(), &idle, nil, time.Now()); err != nil || look.Remaining != 400e3 {
		t.Errorf("at first: %+v, %v", look, err)
	}
	_, _, err := m.lookAtCopy(t.Context(), &idle, nil, time.Now())
	agenttest.Refused(t, "it stands still", err, migration.CodePath, "migrate guest web: not a byte of its memory moved to rome in 1ns, 0.4 MB are left; see whether its agent runs")
	m.plan.Transfer, m.work.prepared.Memory = "qemu-mptcp", "tcp:127.0.0.1:1"
	q := &m.work.ownQueue
	q.at, q.kept = time.Now().Add(time.Hour), 1e6
	q.asked, q.waits, q.rate = time.Now().Add(time.Hour), 1.2e6, 10e6
	if _, _, err := m.lookAtCopy(t.Context(), &idle, nil, time.Now()); err != nil { // what waits counts now
		t.Errorf("at first by QEMU's own connection: %v", err)
	}
	_, _, err = m.lookAtCopy(t.Context(), &idle, nil, time.Now())
	agenttest.Refused(t, "with what waits in QEMU's own connection", err, migration.CodePath, "in 1ns, 1.6 MB are left; see")
}

// TestRoundsThatGetNoShorter: that a copy goes on by chance alone is said once while it does, with what else there is,
// and no time is said to be left; not where another means is at hand.
func TestRoundsThatGetNoShorter(t *testing.T) {
	for name, c := range map[string]struct {
		mode, transfer string
		throttle       int
		mayFollow      bool
		words          []string // nil: it is not said
	}{
		"QEMU's own":          {"precopy", "qemu-tcp", 0, false, []string{"paths carry 10.0 MB/s", "budget is 300ms", "until that is met by chance, or given up, after 1m34s", "aborts it", "--mode hybrid --transfer lanes"}},
		"it may begin again":  {"precopy", "qemu-tcp", 0, true, []string{"or begun again with mode hybrid, after 1m34s"}},
		"it can be throttled": {"precopy", "qemu-tcp", 50, false, nil},
		"the rest may follow": {"hybrid", "lanes", 0, false, nil},
	} {
		m, _ := budgeted(t, c.mode, 300*time.Millisecond, 20*time.Millisecond)
		m.plan.Transfer, m.work.mayFollow, m.work.throttling.Most = c.transfer, c.mayFollow, c.throttle
		copying := policy.Copying{Budget: m.plan.Downtime, Limit: 94 * time.Second}
		var left []float64
		for second := range int64(30) {
			look := policy.Look{At: time.Duration(second) * time.Second, Turn: 2 + second, Remaining: 9e6, Goodput: 10e6, DirtyRate: 9e6}
			copying.See(look)
			m.seeBarely(look, &copying)
			left = append(left, m.progressOf(vm.Progress{Remaining: 9e6}, look).LeftS)
		}
		want := 9.0
		if c.mode == "hybrid" {
			want = 0.9
		}
		if left[1] != want || left[29] != 0 {
			t.Errorf("%s: time left: %v", name, left)
		}
		notes := strings.Join(m.rec.Snapshot().Notes, "; ")
		if n := strings.Count(notes, "gets no less"); n > 1 || (n == 1) != (c.words != nil) {
			t.Errorf("%s: said %d times: %q", name, n, notes)
		}
		for _, word := range c.words {
			if !strings.Contains(notes, word) {
				t.Errorf("%s: %q lacks %q", name, notes, word)
			}
		}
	}
}

// TestBandwidthThatWasLifted: a copy whose bandwidth was so low for a while that it could have taken weeks is given up
// as soon as any other, once it is not.
func TestBandwidthThatWasLifted(t *testing.T) {
	m, n := budgeted(t, "precopy", 300*time.Millisecond, 20*time.Millisecond)
	m.plan.Transfer, m.a.config.Patience = "qemu-tcp", time.Minute
	m.guest.RunsIn(&endless{})
	m.work.facts = vm.Facts{Memory: 256 << 20, Hold: vm.HoldLowBandwidth}
	synctest.Test(t, func(t *testing.T) {
		m.bandwidth.Set(8000)
		time.AfterFunc(time.Second, func() { m.bandwidth.Set(0) })
		ctx, end := context.WithTimeout(t.Context(), 5*time.Minute)
		defer end()
		agenttest.Refused(t, "lifted", m.awaitFit(ctx, m.paths(n)), migration.CodeBudget, "cannot be met")
	})
}

// TestBudgetBelowTheWay: a budget that is shorter than the way is refused at once, with what to allow, in
// each mode that has one; what is to be allowed is not refused.
func TestBudgetBelowTheWay(t *testing.T) {
	const ms = time.Millisecond
	for _, mode := range []string{"precopy", "hybrid", "postcopy"} {
		m, n := budgeted(t, mode, 20*ms, 60*ms)
		agenttest.Refused(t, mode, m.budgetFits(n), migration.CodeBudget, "downtime budget of 20ms", "round trip of 60ms to rome", "alone take 42.6ms", "--downtime of at least 70ms")
		m.plan.Downtime = 70 * ms
		agenttest.Refused(t, mode+" with more", m.budgetFits(n), "")
	}
	m, n := budgeted(t, "stopcopy", 20*ms, 60*ms)
	agenttest.Refused(t, "stopcopy", m.budgetFits(n), "")
	m, n = budgeted(t, "precopy", 15*ms, 4*ms)
	m.plan.Bandwidth = 1_000_000 // it may be lifted
	agenttest.Refused(t, "a short way", m.budgetFits(n), "")
	m.a.config.Uplinks[0].Rate, n.Uplinks[0].Rate = 0, 0
	agenttest.Refused(t, "an unknown rate", m.budgetFits(n), "")
}

// TestGivingUpNamesTheWay: a copy that is given up names the round trip where that is what is missing, and
// no load to lower; else what helps.
func TestGivingUpNamesTheWay(t *testing.T) {
	const ms = time.Millisecond
	for _, c := range []struct {
		budget, rtt time.Duration
		has, not    []string
	}{
		{20 * ms, 60 * ms, []string{"round trip of 60ms", "at least 70ms"}, []string{"lower its load", "--mode hybrid"}},
		{60 * ms, 60 * ms, []string{"round trip of 60ms", "alone take 43.3ms", "lower its load"}, nil},
		{300 * ms, 60 * ms, []string{"it writes", "the paths carry", "lower its load", "--mode hybrid"}, []string{"round trip"}},
	} {
		m, _ := budgeted(t, "precopy", c.budget, c.rtt)
		copying := policy.Copying{Budget: c.budget, RTT: c.rtt, Limit: time.Minute}
		look := policy.Look{At: 61 * time.Second, Turn: 2, Remaining: 50e6, Goodput: 10e6, Tail: policy.PackedTail}
		agenttest.Refused(t, c.budget.String()+", before a look", m.cannotFit(look, &copying), migration.CodeBudget, "no pause could be foreseen in 1m1s")
		copying.See(look)
		err := m.cannotFit(look, &copying)
		agenttest.Refused(t, c.budget.String(), err, migration.CodeBudget, append(c.has, "the shortest pause foreseen in 1m1s was 5.0")...)
		var problem *migration.Problem
		for _, word := range c.not {
			if errors.As(err, &problem) && strings.Contains(problem.Text, word) {
				t.Errorf("%v: %q has %q", c.budget, problem.Text, word)
			}
		}
	}
}

// TestForecastThatBarelyFits: with QEMU's own transfers the check says that what is left comes to more than the budget,
// by how often the guest writes the same; not where it fits. What waits in QEMU's connections leaves before the guest
// stops.
func TestForecastThatBarelyFits(t *testing.T) {
	for name, c := range map[string]struct {
		transfer string
		writes   int64
		said     bool
	}{
		"it writes the same often":          {"qemu-tcp", 60e6, true},
		"it does not":                       {"qemu-tcp", 4e6, false},
		"so it does over its own MPTCP":     {"qemu-mptcp", 60e6, true},
		"what waits there leaves before":    {"qemu-mptcp", 12e6, false},
		"our own data path has other means": {"lanes", 60e6, false},
	} {
		m, n := budgeted(t, "precopy", 300*time.Millisecond, 20*time.Millisecond)
		m.plan.Transfer, m.work.trips = c.transfer, []time.Duration{20 * time.Millisecond, 120 * time.Millisecond}
		m.predict(t.Context(), n, &sample.Basis{Bytes: 1 << 30, Content: 1 << 28, Ratio: 1, Again: 1, DirtyRate: 4e6, Written: 4e6, Writes: c.writes})
		notes := strings.Join(m.rec.Snapshot().Notes, "; ")
		if strings.Contains(notes, "and gets no less, and the downtime budget is 300ms") != c.said {
			t.Errorf("%s: %q", name, notes)
		}
	}
}

// TestForecastBeyondTheBudget: where more is foreseen than is allowed, the check says so.
func TestForecastBeyondTheBudget(t *testing.T) {
	for dirty, noted := range map[int64]bool{0: false, 1e6: false, 25e6: true} {
		m, n := budgeted(t, "precopy", 300*time.Millisecond, 20*time.Millisecond)
		m.work.facts.Memory, m.work.offer.Touched, m.work.dirtyRate = 1<<30, 1<<30, dirty
		m.predict(t.Context(), n, nil)
		notes := m.rec.Snapshot().Notes
		if noted != (len(notes) == 1 && strings.Contains(notes[0], "downtime budget is 300ms") && strings.Contains(notes[0], "--mode hybrid")) {
			t.Errorf("%d bytes/s written: %q, predicted %+v", dirty, notes, m.rec.Snapshot().Predicted)
		}
	}
}

// TestForecastOfWhatFollows: a pause beyond the budget of a guest whose rest follows it has nothing given up, nor
// does less load make it shorter; a limit of bandwidth that leaves its devices no room does have it given up.
func TestForecastOfWhatFollows(t *testing.T) {
	for _, mode := range []string{"postcopy", "hybrid"} {
		for limit, follows := range map[int64]bool{0: true, 100_000: false} {
			m, n := budgeted(t, mode, 300*time.Millisecond, 400*time.Millisecond)
			agenttest.Refused(t, mode, m.budgetFits(n), "")
			m.bandwidth.Set(limit)
			m.predict(t.Context(), n, &sample.Basis{Bytes: 160 << 20, Content: 160 << 20, Ratio: 1, Again: 1, DirtyRate: 15e6, Written: 32 << 20})
			notes := strings.Join(m.rec.Snapshot().Notes, "; ")
			if !strings.Contains(notes, "stand still for about") || !strings.Contains(notes, "budget is 300ms") ||
				strings.Contains(notes, "the rest of memory follows it all the same") != follows || strings.Contains(notes, "given up; allow") == follows {
				t.Errorf("%s, limited to %d bit/s: %q", mode, limit, notes)
			}
		}
	}
}

// TestLimitTooLow: where the limit of bandwidth alone makes the pause too long nothing follows the guest, and what is
// to be changed is said; a limit that leaves the devices room changes nothing.
func TestLimitTooLow(t *testing.T) {
	look := policy.Look{At: time.Hour, Turn: 2, Remaining: 5e6, Goodput: 12_500, Tail: policy.PackedTail}
	for _, mode := range []string{"hybrid", "postcopy"} {
		for limit, want := range map[int64]policy.Verdict{0: policy.Go, 1_000_000: policy.Go, 100_000: policy.GiveUp} {
			m, _ := budgeted(t, mode, 300*time.Millisecond, 400*time.Millisecond)
			m.bandwidth.Set(limit)
			m.work.rounds.See(0, 1)
			m.work.rounds.See(time.Second, 2)
			caughtUp(m)
			if got := m.handEarly(look, policy.GiveUp, &policy.Copying{RTT: 20 * time.Millisecond}); got != want || m.work.early != (want == policy.Go) {
				t.Errorf("%s with %d bit/s: %s, early %v; want %s", mode, limit, got, m.work.early, want)
			}
			if want == policy.GiveUp {
				err := m.cannotFit(look, &policy.Copying{RTT: 20 * time.Millisecond})
				agenttest.Refused(t, mode, err, migration.CodeBudget, "--downtime of at least 2.", "more --bandwidth than 100 kbit/s")
			}
		}
	}
}

// TestPostcopyReadsWhatWasWritten: mode postcopy does not stop the guest as soon as all was read once, where that took
// long, but when what was written meanwhile was read, too.
func TestPostcopyReadsWhatWasWritten(t *testing.T) {
	m, _ := budgeted(t, "postcopy", 300*time.Millisecond, 20*time.Millisecond)
	for _, c := range []struct {
		at    time.Duration
		round int64
		want  policy.Verdict
	}{{time.Second, 1, policy.Wait}, {9 * time.Second, 2, policy.Wait}, {9500 * time.Millisecond, 2, policy.Wait}, {9700 * time.Millisecond, 12, policy.Go}} {
		m.work.rounds.See(c.at, c.round)
		if got := m.handEarly(policy.Look{At: c.at, Turn: c.round, Remaining: 400e6, Goodput: 20e6}, policy.Wait, &policy.Copying{Budget: m.plan.Downtime, RTT: 20 * time.Millisecond}); got != c.want {
			t.Errorf("at %v, in round %d: %s, want %s", c.at, c.round, got, c.want)
		}
	}
}

// TestFitsByThen: hybrid that has copied for long enough goes on to the switch as it is where the last round met the
// budget, and the rest follows where it did not, with the pause that was foreseen; mode postcopy asks for that in any case.
func TestFitsByThen(t *testing.T) {
	for _, c := range []struct {
		mode  string
		left  int64
		early bool
	}{{"hybrid", 1e6, false}, {"hybrid", 20e6, true}, {"postcopy", 1e6, true}} {
		m, _ := budgeted(t, c.mode, 300*time.Millisecond, 20*time.Millisecond)
		m.work.rounds.See(0, 1)
		m.work.rounds.See(time.Second, 2)
		m.work.rounds.Sends(policy.Look{At: time.Second})
		m.work.rounds.See(1020*time.Millisecond, 3)
		copying := policy.Copying{Budget: m.plan.Downtime, RTT: 20 * time.Millisecond}
		look := policy.Look{At: 4 * time.Second, Turn: 2, Remaining: c.left, Goodput: 10e6, Tail: policy.PackedTail}
		verdict := copying.See(look)
		if verdict != policy.Wait {
			t.Fatalf("%+v: %s", c, verdict)
		}
		caughtUp(m)
		verdict = m.handEarly(look, verdict, &copying)
		if verdict != policy.Go || m.work.early != c.early {
			t.Errorf("%+v: %s, early %v", c, verdict, m.work.early)
		}
		if again := m.handEarly(policy.Look{Turn: 2, Remaining: 30e6}, policy.Wait, &copying); c.early && again != policy.Go {
			t.Errorf("%+v: once hooks have held the guest it is %s", c, again)
		}
		if p := m.rec.Snapshot().PostCopy; c.mode == "hybrid" && c.early && (p == nil || !strings.Contains(p.Why, "20.0 MB are left, a pause of 2.023s: the downtime budget of 300ms")) {
			t.Errorf("%+v: %+v", c, p)
		}
	}
}

// TestFollowsOnceSent: where all was read in no time, as a return's pages mostly are known, and waits for the paths,
// nothing follows the guest before that was sent.
func TestFollowsOnceSent(t *testing.T) {
	type at struct {
		at         time.Duration
		read, sent uint64
	}
	began, later := at{300 * time.Millisecond, 50_000, 40_000}, at{4 * time.Second, 51_000, 49_000}
	for name, c := range map[string]struct {
		looks []at
		early bool
	}{
		"it is being sent":     {[]at{began, {1100 * time.Millisecond, 50_500, 42_000}, later}, false},
		"it was just sent":     {[]at{began, later, {5 * time.Second, 51_000, 50_000}}, false},
		"it was sent long ago": {[]at{began, {time.Second, 50_000, 50_000}, later}, true},
	} {
		m, _ := budgeted(t, "hybrid", 300*time.Millisecond, 20*time.Millisecond)
		m.work.rounds.See(0, 1)
		m.work.rounds.See(300*time.Millisecond, 2)
		copying := policy.Copying{Budget: m.plan.Downtime, RTT: 20 * time.Millisecond}
		for i, l := range c.looks {
			look := policy.Look{At: l.at, Turn: int64(2 + i), Remaining: 9e6, Read: l.read, Sent: l.sent, Goodput: 1e6, Tail: policy.PackedTail}
			m.handEarly(look, copying.See(look), &copying)
		}
		if begun := m.work.rounds.Ahead(); begun != c.early { // to read ahead, and then it follows
			t.Errorf("%s: early %v", name, begun)
		}
	}
}

// TestHandLate: of a guest that wrote much since the switch was decided the rest follows it, and its report says
// why; one that did not, or whose mode is precopy, is stopped as it was to be.
func TestHandLate(t *testing.T) {
	for left, want := range map[int64]bool{1e6: false, 3e6: false, 100e6: true} {
		m, _ := budgeted(t, "hybrid", 300*time.Millisecond, 20*time.Millisecond)
		m.handLate(policy.Look{Turn: 2, Remaining: left, Goodput: 10e6, Tail: policy.PackedTail})
		rep := m.rec.Snapshot()
		if m.work.early != want || (rep.PostCopy != nil) != want || want && !strings.Contains(rep.PostCopy.Why, "100.0 MB are left") {
			t.Errorf("%d bytes left: early %v, %+v", left, m.work.early, rep.PostCopy)
		}
	}
	m, _ := budgeted(t, "precopy", 300*time.Millisecond, 20*time.Millisecond)
	if m.lookAgain(t.Context()); m.work.early { // nor is its QEMU asked, which it has not
		t.Error("mode precopy: the rest follows")
	}
}

// TestRateOfOneIsNotKnown: a path whose rate is not known is not taken for one that carries nothing: what all carry is
// not known then, but by the migration's limit.
func TestRateOfOneIsNotKnown(t *testing.T) {
	uplinks := func(site byte, first int64) []config.Uplink {
		at := func(n byte) netip.Addr { return netip.AddrFrom4([4]byte{127, 0, site, n}) }
		return []config.Uplink{{Name: "fibre", Address: at(1), Carries: "both", Rate: first}, {Name: "mobile", Address: at(2), Carries: "migration", Rate: 20e6}}
	}
	for _, transfer := range []string{"lanes", "mptcp"} {
		for first, mode := range map[int64]string{0: "precopy", 20e6: "hybrid", 1000e6: "precopy"} {
			m, n := budgeted(t, "auto", 300*time.Millisecond, 20*time.Millisecond)
			m.plan.Transfer, m.a.config.Uplinks, n.Uplinks = transfer, uplinks(0, first), uplinks(1, first)
			known, writes := int64(0), make(chan int64, 1)
			if first > 0 {
				known = first + 20e6
			}
			writes <- 10e6
			m.work.dirtyRates, m.work.prepared.Memory = writes, "4711"
			if got := m.carried(n); got != known {
				t.Errorf("%s, one of %d bit/s: both carry %d, want %d", transfer, first, got, known)
			}
			if err := m.settleMode(t.Context(), m.carried(n)); err != nil || m.plan.Mode != mode {
				t.Errorf("%s, one of %d bit/s: mode %s, want %s: %v", transfer, first, m.plan.Mode, mode, err)
			}
			disks := first / 8
			if first == 0 {
				disks = 50e6
			}
			if got := m.diskRate(m.paths(n), 50e6); got != disks {
				t.Errorf("one of %d bit/s: the best carries %d bytes/s, want %d", first, got, disks)
			}
			if lane, err := m.multipathLane(m.paths(n)); err != nil || (lane.Rate > 0) != (first > 0) || lane.Pace != lane.Rate {
				t.Errorf("one of %d bit/s: the lane over both is to carry %d bytes/s, and may send %d, %v", first, lane.Rate, lane.Pace, err)
			}
			m.bandwidth.Set(5e6)
			if got := m.carried(n); got != 5e6 {
				t.Errorf("%s, one of %d bit/s: limited to %d", transfer, first, got)
			}
		}
	}
}
