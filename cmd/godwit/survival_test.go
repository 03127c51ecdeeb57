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

// TestAddressesOfOneFamily: an address becomes one of its own family, and those of earlier stays become nothing.
func TestAddressesOfOneFamily(t *testing.T) {
	of := func(list string) (out []migration.Address) {
		for p := range strings.FieldsSeq(list) {
			out = append(out, migration.Address{Prefix: netip.MustParsePrefix(p)})
		}
		return out
	}
	for _, c := range []struct{ old, next, want string }{
		{"10.2.1.2/24 10.1.1.2/24 fd00:2::2/64", "10.3.1.2/24 fd00:3::2/64", "address   10.2.1.2 → 10.3.1.2\naddress   fd00:2::2 → fd00:3::2\n"},
		{"fd00:2::2/64 10.2.1.2/24", "10.3.1.2/24", "address   10.2.1.2 → 10.3.1.2\n"},
		{"fd00:2::2/64", "10.3.1.2/24", "address   10.3.1.2\n"},
		{"10.2.1.2/24", "", ""},
	} {
		var b strings.Builder
		if printAddresses(&b, record.Report{Old: of(c.old), Next: of(c.next)}); b.String() != c.want {
			t.Errorf("%s to %s:\n%s", c.old, c.next, &b)
		}
	}
}
