package mptcp

import (
	"errors"
	"net/netip"
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

func TestLimitsAreReadBack(t *testing.T) {
	loopback(t)
	want := Limits{Subflows: 5, AddAddrAccepted: 6}
	if err := SetLimits(want.Subflows, want.AddAddrAccepted); err != nil {
		t.Fatal(err)
	}
	got, err := ReadLimits()
	if err != nil {
		t.Fatal(err)
	}
	if got != want {
		t.Errorf("limits: got %+v, want %+v", got, want)
	}
	if err := SetLimits(9, 1); err == nil {
		t.Error("the kernel took 9 subflows: its limit is 8")
	}
}

func TestEndpointsAreReadBack(t *testing.T) {
	loopback(t, "10.9.0.1/32", "10.9.0.2/32", "fd09::1/128")
	want := []Endpoint{
		{ID: 7, Addr: netip.MustParseAddr("10.9.0.1"), Dev: "lo", Flags: FlagSignal},
		{ID: 8, Addr: netip.MustParseAddr("fd09::1"), Flags: FlagSignal | FlagBackup},
		{ID: 9, Addr: netip.MustParseAddr("10.9.0.1"), Port: 7999, Flags: FlagSignal},
		{ID: 11, Addr: netip.MustParseAddr("10.9.0.2"), Flags: FlagSubflow | FlagFullmesh},
	}
	for _, e := range want {
		if err := AddEndpoint(e); err != nil {
			t.Fatal(err)
		}
	}
	if err := AddEndpoint(Endpoint{ID: 12, Addr: want[0].Addr, Flags: FlagSignal}); !errors.Is(err, os.ErrExist) {
		t.Errorf("a second endpoint of one address: got %v, want that it exists", err)
	}
	byID := cmpopts.SortSlices(func(a, b Endpoint) bool { return a.ID < b.ID })
	addr := cmp.Comparer(func(a, b netip.Addr) bool { return a == b })
	got, err := Endpoints()
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got, byID, addr); diff != "" {
		t.Errorf("endpoints (-want +got):\n%s", diff)
	}
	for range 2 { // the second time nothing is there
		if err := DelEndpoint(7, netip.Addr{}); err != nil {
			t.Errorf("delete by id alone: %v", err)
		}
	}
	if got, err = Endpoints(); err != nil || len(got) != 3 {
		t.Errorf("after deleting one: %v, %v", got, err)
	}
	if err := DelEndpoint(0, netip.Addr{}); err == nil {
		t.Error("id 0 without an address was taken")
	}
}
