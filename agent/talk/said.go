package talk

import (
	"net/netip"
	"slices"

	"godwit/agent/config"
	"godwit/agent/record"
	"godwit/internal/oneline"
	"godwit/migration"
)

// What another host tells of a migration under way is not refused, as nothing would be won
// by that: the guest runs there. It is cut down to what can be meant, in lists, words and
// times, before it is kept here.

// Sane cuts an answer down.
func (l *LandedAnswer) Sane() {
	l.Report.Sane()
	l.Leased, l.Moved = saneAddresses(l.Leased), saneAddresses(l.Moved)
	if l.Lease < 0 || l.Lease > config.MostLease {
		l.Lease = config.DefaultLease
	}
}

// Sane cuts an answer down.
func (r *ReleaseAnswer) Sane() {
	record.SaneProblem(r.Problem)
	r.Vanished = oneline.Of(r.Vanished)
}

// mostNotes bounds what a destination may have a person know in its check.
const mostNotes = 20

// Sane cuts an answer down.
func (a *Acceptance) Sane() {
	a.Notes = a.Notes[:min(len(a.Notes), mostNotes)]
	for i, note := range a.Notes {
		a.Notes[i] = oneline.Of(note)
	}
}

func saneAddresses(all []netip.Addr) []netip.Addr {
	all = slices.DeleteFunc(all, func(a netip.Addr) bool { return !a.IsValid() })
	return all[:min(len(all), 2*migration.MostAddresses)]
}
