package netstate

import (
	"net/netip"
	"testing"

	"godwit/vm/guest"

	"github.com/vishvananda/netlink"
)

// TestOtherRules: each of our rules is known by what the kernel has of it, also where an earlier release made it. What
// our helper makes in a guest, which may be a host of other guests, is none: it was called stray, and told as removed
// each time that an agent started there.
func TestOtherRules(t *testing.T) {
	addr := netip.MustParseAddr("10.1.1.10")
	for _, r := range []policyRule{here(addr), arriving(addr, "gwt-1"), {dst: addr, priority: PriorityArriving, own: true}, leaving(addr), returning(addr),
		{of: netip.MustParsePrefix("fd00:1:1::/64"), priority: PriorityHears}} {
		if got, ok := readPolicyRule(r.message(), family(r.addr())); !ok || got != r {
			t.Errorf("%s: %v, %v", r, got, ok)
		}
		if r.priority > PriorityReturn { // no earlier release had it
			continue
		}
		if got, ok := readPolicyRule(r.earlier(), family(r.addr())); !ok || got.now() != r {
			t.Errorf("%s of an earlier release: %v, %v", r, got, ok)
		}
	}
	helpers := netlink.NewRule() // as cmd/guest/address has it
	helpers.Priority, helpers.Protocol, helpers.Src, helpers.Table = 10000, guest.RuleProtocol, ipNet(host(addr)), guest.FirstTable
	if r, ok := readPolicyRule(helpers, family(addr)); ok {
		t.Errorf("%s is ours", r)
	}
}
