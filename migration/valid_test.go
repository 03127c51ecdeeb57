package migration

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
)

// TestValid: every state that exploring comes to is valid, and others are not.
func TestValid(t *testing.T) {
	x := newExplorer(variant{})
	if f, _ := x.explore(world{kills: 1, faults: 1, asks: 1}, 0); f != nil {
		t.Fatal(f)
	}
	if f, _ := x.explore(world{late: true, kills: 1, deaths: 1}, 0); f != nil {
		t.Fatal(f)
	}
	if !slices.ContainsFunc(x.src, func(s Source) bool { return s.Course == Ended && s.Lost() }) {
		t.Error("no guest was lost")
	}
	for _, s := range x.src[1:] {
		if err := s.Valid(); err != nil {
			t.Errorf("%+v: %v", s, err)
		}
	}
	for _, d := range x.dst[1:] {
		if err := d.Valid(); err != nil {
			t.Errorf("%+v: %v", d, err)
		}
	}
	for _, s := range []Source{
		{}, {Course: "sideways"}, {Course: Forward, At: len(sourceSteps)}, {Course: Forward, At: -1}, {Course: Undoing},
		{Course: Undoing, Undo: []Effect{Resume}},
		{Course: Undoing, Outcome: Failed, Undo: []Effect{Resume}},
		{Course: Undoing, Outcome: Aborted, Stood: true, Undo: []Effect{Resume}},
		{Course: Undoing, Outcome: Aborted, Undo: []Effect{Resume, "explode"}}, {Course: Undoing, Outcome: Aborted, Undo: []Effect{""}}, {Course: Ended}, {Course: Ended, Outcome: InDoubt},
	} {
		if s.Valid() == nil {
			t.Errorf("%+v is valid", s)
		}
	}
	for _, d := range []Destination{{}, {Landing: "upside down"}} {
		if d.Valid() == nil {
			t.Errorf("%+v is valid", d)
		}
	}
}

// TestZones: text behind an address is a device's name, or another host could have it taken for whatever comes behind
// addresses.
func TestZones(t *testing.T) {
	for zone, ok := range map[string]bool{"": true, "br0": true, "lan0.5": true, "x publish=254": false, "x\x1b[31m": false, "é": false, "a/b": false, "0123456789abcdef": false} {
		router := netip.MustParseAddr("fe80::1").WithZone(zone)
		for _, addr := range []Address{
			{Prefix: netip.MustParsePrefix("fd00::5/64"), Gateway: router}, {Prefix: netip.MustParsePrefix("fd00::5/64"), Public: router},
		} {
			if err := CheckAddresses([]Address{addr}); (err == nil) != ok || err != nil && strings.ContainsAny(err.Error(), "\x1b\n") {
				t.Errorf("%q: %v", zone, err)
			}
		}
	}
}
