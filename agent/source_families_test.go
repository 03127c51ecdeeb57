package agent

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"godwit/agent/care"
	"godwit/agent/guests"
	"godwit/agent/record"
	"godwit/migration"
	"godwit/vm/guest"
)

// manner is the channel of a guest with so many connections that have a subflow at an address of each family.
type manner struct {
	guest.Channel
	four, six int
	silent    bool
}

func (s manner) Done() <-chan struct{} { return nil }

func (s manner) Users(_ context.Context, addrs ...netip.Addr) (guest.Users, error) {
	if s.silent {
		return guest.Users{}, errors.New("no answer")
	}
	if addrs[0].Is4() {
		return guest.Users{MPTCP: s.four}, nil
	}
	return guest.Users{MPTCP: s.six}, nil
}

// TestNoteApart: the check says which connections cannot follow, as the destination gives the guest no address of their
// family, and nothing where there are none such.
func TestNoteApart(t *testing.T) {
	const v4, v6 = "10.1.1.10/24", "fd00:1:1::10/64"
	const four, six = "rome gives it no IPv4 address: connections by IPv4 cannot follow there, and live on", "rome gives it no IPv6 address: connections by IPv6 follow there where their clients have IPv4, too, and else live on"
	for name, c := range map[string]struct {
		held, next  []string
		connections int
		network     string
		by          manner
		want        string
	}{
		"the same family":        {[]string{v4}, []string{v4}, 1, "mptcp", manner{}, ""},
		"both":                   {[]string{v4, v6}, []string{v4, v6}, 1, "mptcp", manner{}, ""},
		"another":                {[]string{v4}, []string{v6}, 1, "mptcp", manner{}, four},
		"the other way round":    {[]string{v6}, []string{v4}, 1, "mptcp", manner{}, six},
		"one of two":             {[]string{v4, v6}, []string{v6}, 1, "mptcp", manner{}, four},
		"by the other alone":     {[]string{v4, v6}, []string{v4}, 2, "mptcp", manner{four: 2}, ""},
		"by both":                {[]string{v4, v6}, []string{v4}, 2, "mptcp", manner{four: 2, six: 2}, ""},
		"one by this":            {[]string{v4, v6}, []string{v4}, 2, "mptcp", manner{four: 1, six: 1}, six},
		"it does not say":        {[]string{v4, v6}, []string{v4}, 2, "mptcp", manner{four: 2, silent: true}, six},
		"one more":               {[]string{v4}, []string{v4, v6}, 1, "mptcp", manner{}, ""},
		"nobody is there":        {[]string{v4}, []string{v6}, 0, "mptcp", manner{}, ""},
		"nobody is to follow":    {[]string{v4}, []string{v6}, 1, "drain", manner{}, ""},
		"the addresses are kept": {[]string{v4}, []string{v4}, 1, "tunnel", manner{}, ""},
	} {
		plan := migration.Plan{Guest: "web", To: "rome", Network: c.network, Connections: c.connections}
		for _, p := range c.held {
			plan.Held = append(plan.Held, migration.Address{Prefix: netip.MustParsePrefix(p)})
		}
		for _, p := range c.next {
			plan.Next = append(plan.Next, migration.Address{Prefix: netip.MustParsePrefix(p)})
		}
		m := &outgoing{plan: plan, rec: record.New("paris", plan, time.Now()), guest: askedBy(c.by, guests.New(care.Held{}, nil))}
		m.noteApart(t.Context())
		if notes := strings.Join(m.rec.Snapshot().Notes, "\n"); c.want == "" && notes != "" || !strings.Contains(notes, c.want) {
			t.Errorf("%s: %q, want %q", name, notes, c.want)
		}
	}
}

// TestNoteApartAtHome: those by a family of which the guest gets no next address need no tunnel where its old ones of
// that family are at home there.
func TestNoteApartAtHome(t *testing.T) {
	old := func(prefix, home string) migration.Address {
		return migration.Address{Prefix: netip.MustParsePrefix(prefix), Home: home}
	}
	four, six := old("10.2.1.10/24", "rome"), old("fd00:2:1::10/64", "rome")
	const cannot = "connections by IPv4 cannot follow there, and live on "
	for want, held := range map[string][]migration.Address{
		cannot + "at the old address, which is at home there: no tunnel":     {four, old("fd00:1:1::10/64", "paris")},
		cannot + "at the old addresses, which are at home there: no tunnel;": {four, old("10.2.1.11/24", "rome"), six},
		cannot + "through the tunnel;":                                       {four, old("10.1.1.10/24", "paris"), six},
	} {
		plan := migration.Plan{Guest: "web", To: "rome", Network: "mptcp", Connections: 2, Held: held, Next: []migration.Address{old("fd00:2:1::11/64", "rome")}}
		m := &outgoing{plan: plan, rec: record.New("paris", plan, time.Now()), guest: askedBy(manner{four: 2}, guests.New(care.Held{}, nil))}
		m.noteApart(t.Context())
		if notes := strings.Join(m.rec.Snapshot().Notes, "\n"); !strings.Contains(notes, want) {
			t.Errorf("%q, want %q", notes, want)
		}
	}
}

// TestNoteUsersOfDrain: with a network drain that was asked for none follows, and none is told as one that can.
func TestNoteUsersOfDrain(t *testing.T) {
	for _, c := range []struct {
		users guest.Users
		want  string
	}{
		{guest.Users{MPTCP: 2, TCP: 1}, "2 MPTCP connections, which network drain leaves on their old address, and 1 of plain TCP"},
		{guest.Users{TCP: 1}, "0 MPTCP connections can follow; 1 of plain TCP"},
	} {
		plan := migration.Plan{Guest: "web", To: "rome", Network: "drain", Connections: c.users.MPTCP}
		m := &outgoing{plan: plan, rec: record.New("paris", plan, time.Now()), work: &sourceWork{users: c.users}}
		m.noteUsers(t.Context())
		if notes := strings.Join(m.rec.Snapshot().Notes, "\n"); !strings.HasPrefix(notes, "before the move: "+c.want) {
			t.Errorf("%+v: %q, want %q", c.users, notes, c.want)
		}
	}
}

// ifAccepted is by what the clients of connections that can follow must let them.
const ifAccepted = " where their clients take announced addresses (" + guest.Accepts + ")"

// TestNoteUsers: connections are told as such that can follow where the destination gives the guest an address by which
// they do.
func TestNoteUsers(t *testing.T) {
	const v4, v6 = "10.1.1.10/24", "fd00:1:1::10/64"
	for name, c := range map[string]struct {
		held, next []string
		by         manner
		want       string
	}{
		"the same family":     {[]string{v4}, []string{v4}, manner{}, "4 MPTCP connections can follow" + ifAccepted + "; 1 of plain TCP"},
		"by IPv4 alone":       {[]string{v4}, []string{v6}, manner{}, "0 MPTCP connections can follow; 1 of plain TCP"},
		"two of them by IPv4": {[]string{v4, v6}, []string{v6}, manner{four: 2, six: 2}, "2 MPTCP connections can follow" + ifAccepted + "; 1 of plain TCP"},
		"all by IPv6, too":    {[]string{v4, v6}, []string{v6}, manner{four: 4, six: 4}, "4 MPTCP connections can follow" + ifAccepted + "; 1 of plain TCP"},
		"by IPv6, to IPv4":    {[]string{v4, v6}, []string{v4}, manner{four: 2, six: 2}, "4 MPTCP connections can follow" + ifAccepted + "; 1 of plain TCP"},
		"to both":             {[]string{v4, v6}, []string{v4, v6}, manner{four: 2, six: 2}, "4 MPTCP connections can follow" + ifAccepted + "; 1 of plain TCP"},
	} {
		plan := migration.Plan{Guest: "web", To: "rome", Network: "mptcp", Connections: 4}
		for _, p := range c.held {
			plan.Held = append(plan.Held, migration.Address{Prefix: netip.MustParsePrefix(p)})
		}
		for _, p := range c.next {
			plan.Next = append(plan.Next, migration.Address{Prefix: netip.MustParsePrefix(p)})
		}
		m := &outgoing{plan: plan, rec: record.New("paris", plan, time.Now()), guest: askedBy(c.by, guests.New(care.Held{}, nil)), work: &sourceWork{users: guest.Users{MPTCP: 4, TCP: 1}}}
		m.noteUsers(t.Context())
		if notes := strings.Join(m.rec.Snapshot().Notes, "\n"); !strings.Contains(notes, "before the move: "+c.want) {
			t.Errorf("%s: %q, want %q", name, notes, c.want)
		}
	}
}

// TestNoteDialled: connections that the guest itself opened are told apart, where any are to follow.
func TestNoteDialled(t *testing.T) {
	const told = "2 MPTCP connections were opened by the guest itself: they follow where their peers take announced addresses (" + guest.Accepts + "), and else live on"
	const stay = "2 MPTCP connections were opened by the guest itself: none follows, as the guest announces no port for them, and they live on through the tunnel"
	ports := []string{guest.CapPorts}
	for name, c := range map[string]struct {
		network string
		can     []string
		users   guest.Users
		want    []string
	}{
		"no port is announced":  {"mptcp", nil, guest.Users{MPTCP: 3, Dialled: 2, TCP: 1}, []string{stay, "1 MPTCP connections can follow" + ifAccepted + "; 1 of plain TCP"}},
		"none":                  {"mptcp", ports, guest.Users{MPTCP: 3, TCP: 1}, []string{"3 MPTCP connections can follow" + ifAccepted + "; 1 of plain TCP"}},
		"beside others":         {"mptcp", ports, guest.Users{MPTCP: 3, Dialled: 2, TCP: 1}, []string{told, "1 MPTCP connections can follow" + ifAccepted + "; 1 of plain TCP"}},
		"alone":                 {"mptcp", ports, guest.Users{MPTCP: 2, Dialled: 2}, []string{told}},
		"nobody is to follow":   {"drain", ports, guest.Users{MPTCP: 2, Dialled: 2}, nil},
		"it keeps its address":  {"tunnel", ports, guest.Users{MPTCP: 2, Dialled: 2, TCP: 1}, nil},
		"more than there are":   {"mptcp", ports, guest.Users{MPTCP: 2, Dialled: 7}, []string{told}},
		"fewer than none of it": {"mptcp", ports, guest.Users{MPTCP: 2, Dialled: -7}, nil},
	} {
		plan := migration.Plan{Guest: "web", To: "rome", Network: c.network, Connections: c.users.MPTCP}
		m := &outgoing{plan: plan, rec: record.New("paris", plan, time.Now()), work: &sourceWork{users: c.users, capabilities: c.can}}
		m.noteUsers(t.Context())
		notes := m.rec.Snapshot().Notes
		if !slices.EqualFunc(notes, c.want, strings.Contains) {
			t.Errorf("%s: %q, want %q", name, notes, c.want)
		}
	}
}
