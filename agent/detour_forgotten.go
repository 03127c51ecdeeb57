package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"slices"

	"godwit/agent/api"
	"godwit/agent/detour"
	"godwit/agent/limits"
	"godwit/agent/peer"
	"godwit/agent/talk"
	"godwit/migration"
)

// What leads to a guest that left ends by the word of that guest's host. Where that host is gone for good, and the guest with it, no such word
// comes: a person says so.

// apiForgetAway ends what this host leads after a guest that left it, of which nothing runs any more: its addresses are
// its site's again. On an error before that nothing has changed.
func (a *Agent) apiForgetAway(r *http.Request) (any, error) {
	name := r.PathValue("name")
	wrong := func(code migration.Code, text string, args ...any) error {
		return &migration.Problem{Code: code, Text: fmt.Sprintf("forget guest %s: ", name) + fmt.Sprintf(text, args...)}
	}
	if _, err := a.guests.Find(name); err == nil {
		return nil, wrong(migration.CodeUsage, "it is under care on this host; --away is for one that left it")
	}
	if err := cmp.Or(a.guests.Readable(name), a.comesHere(name), a.journalLeft(name, "")); err != nil {
		return nil, err
	}
	if a.guests.Expects(name) || a.isSilent(name) != nil {
		return nil, wrong(migration.CodeBusy, "it may be on this host: one of that name is being started, or its QEMU does not answer yet; see `godwit guest ls` in a while")
	}
	all := a.detours.List(name)
	if !slices.ContainsFunc(all, func(d detour.Detour) bool { return d.LeadsAway() }) {
		return nil, wrong(migration.CodeUnknownGuest, "host %s leads nothing after a guest of that name", a.config.Host)
	}
	for _, d := range all {
		if a.underWay(migrationOf(d.ID)) {
			return nil, wrong(migration.CodeBusy, "its migration %s is not over; see `godwit recover`", migrationOf(d.ID))
		}
		if !d.LeadsAway() {
			continue
		}
		if why := a.mayRunAt(r.Context(), d.Peer, name); why != "" {
			return nil, wrong(migration.CodeBusy, "its addresses are led to %s, which %s", d.Peer, why)
		}
	}
	gone := api.Forgotten{Guest: name, Addresses: []netip.Addr{}}
	var err error
	ctx := context.WithoutCancel(r.Context())
	for _, d := range all {
		end := a.endDetour
		if gone.Addresses = append(gone.Addresses, d.LedAway()...); !d.LeadsAway() {
			end = a.endBoth // what led it through here, at the other end too
		}
		err = errors.Join(err, end(ctx, d))
	}
	a.log.Warn("what led to a guest that left has ended by a person's word", "guest", name, "addresses", gone.Addresses)
	return gone, err
}

// mayRunAt is why a guest may run at the host where its addresses are led, or beyond; "": that host does not answer, is
// not named any more, or neither has one of that name nor leads anything after it.
func (a *Agent) mayRunAt(ctx context.Context, host, guest string) string {
	link, _, err := a.link(host)
	if err != nil {
		return ""
	}
	said, err := askAbout(ctx, link, guest)
	problem, away := (*migration.Problem)(nil), (*peer.Unreachable)(nil)
	switch {
	case ctx.Err() != nil:
		return "was being asked as this was called off"
	case errors.As(err, &away) && away.Disbelieved(): // as where a certificate's year is over
		return fmt.Sprintf("is there: %v; if it is another host by now, take it out of this one's peers", err)
	case errors.As(err, &problem):
		return "answers: " + problem.Text
	case err != nil:
		return ""
	case said.Has == nil:
		return "answers, and is of a release that does not say whether it has the guest; upgrade it first"
	case said.LedOn:
		return fmt.Sprintf("leads what comes for it on to another; if it runs nowhere any more, say so there: `godwit guest forget %s --away` on %s ends both", guest, host)
	case *said.Has:
		return "has it; move it from there, or end it there, and what leads to it goes too"
	}
	return ""
}

// askAbout asks a host about a guest, three times where it does not answer: of two paths of which the first was cut
// just now a call takes the other after 3 s.
func askAbout(ctx context.Context, link *peer.Link, guest string) (said talk.Presence, err error) {
	for range 3 {
		ask, cancel := limits.Presence.On(ctx)
		err = link.Call(ask, http.MethodGet, "/v1/host?guest="+url.QueryEscape(guest), nil, &said)
		cancel()
		if problem, away := (*migration.Problem)(nil), (*peer.Unreachable)(nil); err == nil || ctx.Err() != nil ||
			errors.As(err, &problem) || errors.As(err, &away) && away.Disbelieved() {
			return said, err
		}
	}
	return said, err
}
