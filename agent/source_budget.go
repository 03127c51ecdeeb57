package agent

import (
	"fmt"
	"time"

	"godwit/agent/config"
	"godwit/agent/peer"
	"godwit/agent/ways"
	"godwit/migration"
	"godwit/policy"
)

// The downtime budget is a contract: what cannot keep it is refused before anything is copied, or given
// up with the reason, and where a guest stood still for longer all the same its report says so.

// tailBytes is what the transfer sends of a guest's devices; 0: as QEMU writes it.
func (m *outgoing) tailBytes() int64 {
	if m.plan.OwnPath() {
		return policy.PackedTail
	}
	return 0
}

// budgetFits refuses a budget that no guest keeps over these paths, however little it writes: copying
// would not end. All modes pause for so long, but stopcopy has no budget. The migration's own limit of bandwidth does not
// count: it may be lifted while it runs.
func (m *outgoing) budgetFits(n config.Neighbour) error {
	rtt := m.pauseRTT()
	least := policy.Least(rtt, m.tailBytes(), ways.Rate(m.answering(m.paths(n)))/8)
	if m.plan.Mode == "stopcopy" || least <= m.plan.Downtime {
		return nil
	}
	return m.problem(migration.CodeBudget,
		"the downtime budget of %v cannot be met: the round trip of %v to %s, and its devices' state, alone take %v of a pause; allow --downtime of at least %v",
		m.plan.Downtime, roundTrip(rtt), m.plan.To, roundTrip(least), policy.Allow(least))
}

// roundTrip is a time as people want to read it.
func roundTrip(d time.Duration) time.Duration { return d.Round(100 * time.Microsecond) }

// cannotFit says why a copy is given up, by the last look at it, and keeps for its next try what the paths carry.
func (m *outgoing) cannotFit(look policy.Look, copying *policy.Copying) error {
	m.carry = look.Goodput * 8
	rtt, cures := max(copying.RTT, 2*look.Release), m.cures()
	least := policy.Look{Goodput: look.Goodput, Tail: look.Tail, Release: look.Release}.Downtime(copying.RTT)
	way := ""
	if 2*least > m.plan.Downtime {
		way = fmt.Sprintf(", of which the round trip of %v, and its devices' state, alone take %v", roundTrip(rtt), roundTrip(least))
	}
	if least > m.plan.Downtime { // nothing that is done to the guest helps, nor any mode
		m.work.mayFollow = false
		cures = fmt.Sprintf("allow --downtime of at least %v", policy.Allow(least))
		if limit := m.bandwidth.Bits(); limit > 0 {
			cures += fmt.Sprintf(", or more --bandwidth than %d kbit/s", limit/1000)
		}
	}
	return m.problem(migration.CodeBudget,
		"the downtime budget of %v cannot be met: it %s, the paths carry %.1f MB/s, %s%s%s; %s",
		m.plan.Downtime, m.writes(look), float64(look.Goodput)/1e6,
		foreseen(look, copying), way, m.throttleWords(), cures)
}

// seeBarely says once, while a copy goes on, that its rounds get no shorter, so that nobody knows for how long it will.
func (m *outgoing) seeBarely(look policy.Look, copying *policy.Copying) {
	m.work.barely = copying.Barely(look.At)
	throttles := m.work.throttling.Most > m.work.throttling.Asked() // which says so
	if !m.work.barely || m.work.barelyTold || throttles || mayHandEarly(m.plan) && !m.opaque() {
		return
	}
	m.work.barelyTold = true
	next, cures := "given up", "; who wants it to end sooner aborts it, and then may "+m.cures()
	if m.work.mayFollow {
		next, cures = "begun again with mode hybrid", ""
	}
	m.rec.Note(fmt.Sprintf("what is left to copy gets no less: the guest %s, the paths carry %.1f MB/s, %s, and the downtime budget is %v%s: it is copied on until that is met by chance, or %s, after %v at the earliest%s",
		m.writes(look), float64(look.Goodput)/1e6, foreseen(look, copying), m.plan.Downtime, m.throttleWords(), next, copying.Limit.Round(time.Second), cures))
}

// foreseen is the shortest pause there would have been, and whether it is the hosts that were waited for.
func foreseen(look policy.Look, copying *policy.Copying) string {
	at := look.At.Round(time.Second)
	pause, work := copying.Best()
	if pause == 0 {
		return fmt.Sprintf("no pause could be foreseen in %v", at)
	}
	said := fmt.Sprintf("the shortest pause foreseen in %v was %v", at, pause.Round(time.Millisecond))
	if work > 0 {
		said += fmt.Sprintf(", %v of it for what the hosts' processors do with what is left", work.Round(time.Millisecond))
	}
	return said
}

// noteForecast says before the first byte that the budget is less than what is foreseen.
func (m *outgoing) noteForecast(f policy.Forecast, unsure bool) {
	about := fmt.Sprint(f.Downtime.Round(10 * time.Millisecond))
	if unsure {
		about += fmt.Sprintf(" (no stop-and-copy to %s has shown yet how fast both hosts are: it is a guess: it may take a third of that, or three times as long)", m.plan.To)
	}
	switch {
	case f.Downtime <= m.plan.Downtime && f.Settles > 0 && !m.plan.OwnPath():
		m.rec.Note(fmt.Sprintf("as foreseen what is left to copy comes to a pause of about %v, and gets no less, and the downtime budget is %v: it may be copied for longer than foreseen, until that is met by chance, and be given up; %s",
			f.Settles.Round(10*time.Millisecond), m.plan.Downtime, m.cures()))
	case f.Downtime <= m.plan.Downtime:
	case m.plan.Mode == "stopcopy":
		m.rec.Note(fmt.Sprintf("mode stopcopy: the guest will stand still for about %s, while all of its memory is copied; the downtime budget is %v, which any other mode keeps",
			about, m.plan.Downtime))
	case m.work.mayFollow:
		m.rec.Note(fmt.Sprintf("as foreseen the guest would have to stand still for about %s, and the downtime budget is %v: it may begin again with mode hybrid, in which the rest of memory follows the guest",
			about, m.plan.Downtime))
	case mayHandEarly(m.plan) && !m.limitTooLow():
		m.rec.Note(fmt.Sprintf("as foreseen the guest will stand still for about %s, and the downtime budget is %v: the rest of memory follows it all the same",
			about, m.plan.Downtime))
	default:
		m.rec.Note(fmt.Sprintf("as foreseen the guest would have to stand still for about %s, and the downtime budget is %v: it may be given up; %s",
			about, m.plan.Downtime, m.cures()))
	}
}

// notePath says before the first byte what of the paths or of the disks makes it take long.
func (m *outgoing) notePath(paths []string, disks policy.DiskFacts, f policy.Forecast) {
	for _, note := range paths {
		m.rec.Note(note)
	}
	if f.Disks.Waits {
		m.rec.Note(fmt.Sprintf("it writes to its disks %.0f times a second: as foreseen its writes will wait for the copy of them, which takes about %v where these are anywhere in the %d MB that they hold, and less where one is beside the other",
			disks.Writes, f.Disks.Took.Round(time.Second), disks.Bytes/1e6))
	}
}

// copyLimit bounds a copy that comes no nearer to its end by what the slowest believable progress takes.
func (m *outgoing) copyLimit(paths []peer.Path) time.Duration {
	var rate int64
	for _, p := range m.answering(paths) {
		rate += p.Rate
	}
	if rate == 0 {
		rate = 10_000_000
	}
	if most := m.bandwidth.Bits(); most > 0 {
		if m.work.mirrors != nil { // disks may have as much
			most = max(1, most/2)
		}
		rate = min(rate, most)
	}
	whole := time.Duration(float64(m.work.facts.Memory) * 8 / float64(rate) * float64(time.Second))
	return 3*whole + 30*time.Second
}
