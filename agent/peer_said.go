package agent

import (
	"errors"
	"fmt"
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

// sane cuts an answer down.
func (l *LandedAnswer) sane() {
	l.Report.Sane()
	l.Leased, l.Moved = saneAddresses(l.Leased), saneAddresses(l.Moved)
	if l.Lease < 0 || l.Lease > config.MostLease {
		l.Lease = config.DefaultLease
	}
}

// sane cuts an answer down.
func (r *ReleaseAnswer) sane() {
	record.SaneProblem(r.Problem)
	r.Vanished = oneline.Of(r.Vanished)
}

// refused is the destination's refusal, for the reason that it gives, if any.
func (m *outgoing) refused(why *migration.Problem) error {
	if why == nil || why.Text == "" {
		why = &migration.Problem{Code: migration.CodePeer, Text: fmt.Sprintf("host %s refused guest %s, and did not say why", m.plan.To, m.plan.Guest)}
	}
	return errors.Join(errDeclined, why)
}

func saneAddresses(all []netip.Addr) []netip.Addr {
	all = slices.DeleteFunc(all, func(a netip.Addr) bool { return !a.IsValid() })
	return all[:min(len(all), 2*migration.MostAddresses)]
}
