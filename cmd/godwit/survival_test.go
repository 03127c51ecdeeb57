package main

import (
	"net/netip"
	"strings"
	"testing"

	"godwit/agent/record"
	"godwit/migration"
)

// TestSurvivalUnknown: where the guest's list is missing nobody is told that it had no connections.
func TestSurvivalUnknown(t *testing.T) {
	for _, c := range []struct {
		record.Survival
		lines int
	}{{record.Survival{}, 1}, {record.Survival{Unknown: "not known"}, 1}, {record.Survival{Unknown: "not known", Total: 2, Tunnelled: 2}, 2}} {
		var b strings.Builder
		printSurvival(&b, &c.Survival)
		if n := strings.Count(b.String(), "\n"); n != c.lines || strings.HasPrefix(b.String(), "not known") != (c.Unknown != "") {
			t.Errorf("%+v: %q", c.Survival, b.String())
		}
	}
}

// addressesOf are those of a list.
func addressesOf(list string) (out []migration.Address) {
	for p := range strings.FieldsSeq(list) {
		out = append(out, migration.Address{Prefix: netip.MustParsePrefix(p)})
	}
	return out
}

// TestAddressesOfOneFamily: an address becomes one of its own family, and those of earlier stays become nothing.
func TestAddressesOfOneFamily(t *testing.T) {
	for _, c := range []struct{ old, next, want string }{
		{"10.2.1.2/24 10.1.1.2/24 fd00:2::2/64", "10.3.1.2/24 fd00:3::2/64", "address   10.2.1.2 → 10.3.1.2\naddress   fd00:2::2 → fd00:3::2\n"},
		{"fd00:2::2/64 10.2.1.2/24", "10.3.1.2/24", "address   10.2.1.2 → 10.3.1.2\n"},
		{"fd00:2::2/64", "10.3.1.2/24", "address   10.3.1.2\n"},
		{"10.2.1.2/24", "", ""},
	} {
		var b strings.Builder
		if printAddresses(&b, record.Report{Old: addressesOf(c.old), Next: addressesOf(c.next)}); b.String() != c.want {
			t.Errorf("%s to %s:\n%s", c.old, c.next, &b)
		}
	}
}

// TestAddressesThatStay: of a migration that came to nothing no address is said to become another, and one that is kept
// becomes none; an agent of before has the one that was meant, where the handover failed.
func TestAddressesThatStay(t *testing.T) {
	old, next := addressesOf("10.2.1.2/24 10.1.1.2/24"), addressesOf("10.3.1.2/24")
	const becomes, kept = "address   10.2.1.2 → 10.3.1.2\n", "address   10.2.1.2, kept\naddress   10.1.1.2, kept\n"
	for _, c := range []struct {
		outcome migration.Outcome
		network string
		next    []migration.Address
		want    string
	}{
		{migration.Completed, "mptcp", next, becomes}, {"", "mptcp", next, becomes}, {migration.InDoubt, "mptcp", next, becomes},
		{migration.Aborted, "mptcp", next, ""}, {migration.Refused, "mptcp", next, ""}, {migration.Failed, "mptcp", next, ""},
		{migration.Completed, "tunnel", old, kept}, {migration.Completed, "tunnel", next, kept}, {migration.Aborted, "tunnel", old, ""},
	} {
		var b strings.Builder
		if printAddresses(&b, record.Report{Outcome: c.outcome, Network: c.network, Old: old, Next: c.next}); b.String() != c.want {
			t.Errorf("%q, %s: %q, want %q", c.outcome, c.network, &b, c.want)
		}
	}
}
