package netstate

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/google/nftables"
)

// TestShut: a chain that drops somewhere bars a guest's packets: by its policy, by a rule, or where it leads, at
// whatever depth; one of the other family does not.
func TestShut(t *testing.T) {
	chain := func(family nftables.TableFamily, name string) fwChain { return fwChain{family, "filter", name} }
	four, six, both := nftables.TableFamilyIPv4, nftables.TableFamilyIPv6, nftables.TableFamilyINet
	fw := &firewall{
		forward: []fwChain{chain(four, "open"), chain(four, "policy"), chain(six, "rule"), chain(both, "leads"), chain(both, "nowhere"), chain(four, "ring")},
		policies: map[fwChain]nftables.ChainPolicy{
			chain(four, "open"): nftables.ChainPolicyAccept, chain(four, "policy"): nftables.ChainPolicyDrop, chain(six, "open"): nftables.ChainPolicyDrop,
		},
		rules: map[fwChain][]fwRule{
			chain(four, "open"): {{}}, chain(six, "rule"): {{}, {drops: true}},
			chain(both, "leads"): {{jumps: []string{"harmless", "there"}}}, chain(both, "there"): {{jumps: []string{"end"}}}, chain(both, "end"): {{drops: true}},
			chain(both, "nowhere"): {{jumps: []string{"harmless", "other"}}}, chain(four, "other"): {{drops: true}},
			chain(four, "ring"): {{jumps: []string{"round"}}}, chain(four, "round"): {{jumps: []string{"ring"}}},
		},
	}
	for text, want := range map[string][]fwChain{"10.1.1.20": {chain(four, "policy"), chain(both, "leads")}, "fd00::20": {chain(six, "rule"), chain(both, "leads")}} {
		if got := fw.shut(netip.MustParseAddr(text)); !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", text, got, want)
		}
	}
}

// TestStandsFor: who is answered for is a neighbour of the visitor's own link: neither the visitor itself, nor a
// router, nor somebody of elsewhere.
func TestStandsFor(t *testing.T) {
	s := &Answerer{of: []netip.Prefix{netip.MustParsePrefix("10.1.1.20/24"), netip.MustParsePrefix("fd00:1::20/64")}, but: []netip.Addr{netip.MustParseAddr("10.1.1.1")}}
	for text, want := range map[string]bool{
		"10.1.1.30": true, "fd00:1::30": true, "10.1.1.20": false, "fd00:1::20": false, "10.1.1.1": false, "10.1.2.30": false, "fd00:2::30": false, "fe80::1": false,
	} {
		if s.stands(netip.MustParseAddr(text)) != want {
			t.Errorf("%s: answered for %v", text, !want)
		}
	}
}
