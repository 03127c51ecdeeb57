package hold_test

import (
	"encoding/hex"
	"net/netip"
	"slices"
	"testing"

	"godwit/netstate/hold"
)

// TestWithout: packets to an address are told from others by what they say, whatever else a tap has.
func TestWithout(t *testing.T) {
	frame := func(ether string, packet string) []byte {
		raw, err := hex.DecodeString(ether + packet)
		if err != nil {
			t.Fatal(err)
		}
		return append(make([]byte, hold.HeaderLen), raw...)
	}
	const (
		macs = "525400000002" + "525400000001"
		v4   = "45000014000040004006" + "0000" + "c0000201"                      // from 192.0.2.1
		v6   = "6000000000000640" + "20010db8000000000000000000000001"           // from 2001:db8::1
		arp  = "0001080006040001" + "525400000001" + "0a020101" + "000000000000" // 10.2.1.1 asks for
	)
	next4, next6 := frame(macs+"0800", v4+"0a02010a"), frame(macs+"86dd", v6+"fd000002000000000000000000000010")
	others := [][]byte{
		frame(macs+"0800", v4+"0a01010a"), frame(macs+"86dd", v6+"fd000001000000000000000000000010"), frame(macs+"0806", arp+"0a02010a"),
		frame(macs+"0800", v4[:20]), frame(macs+"86dd", v6), frame(macs, ""), frame("", ""),
	}
	addrs := []netip.Addr{netip.MustParseAddr("10.2.1.10"), netip.MustParseAddr("fd00:2::10")}
	all := append([][]byte{next4}, append(slices.Clone(others), next6)...)
	was := slices.Clone(all)
	same := func(a, b [][]byte) bool { return slices.EqualFunc(a, b, slices.Equal[[]byte]) }
	if got := hold.Without(all, addrs); !same(got, others) {
		t.Errorf("left %x, want %x", got, others)
	}
	if !same(all, was) {
		t.Error("the argument was changed")
	}
	if got := hold.Without(all, nil); !same(got, was) {
		t.Errorf("without nothing: %x", got)
	}
}
