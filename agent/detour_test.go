package agent

import (
	"net/netip"

	"godwit/agent/detour"
)

// place has a hold these detours beside those that it has, without a word to the kernel.
func place(a *Agent, all ...*detour.Detour) {
	byID := map[string]*detour.Detour{}
	for _, d := range a.detours.List("") {
		byID[d.ID] = &d
	}
	for _, d := range all {
		byID[d.ID] = d
	}
	a.detours = detour.New(a.config.StatePath("detours.json"), a.config.Network, byID)
}

// displace has a hold a detour no more, without a word to the kernel.
func displace(a *Agent, id string) {
	byID := map[string]*detour.Detour{}
	for _, d := range a.detours.List("") {
		if d.ID != id {
			byID[d.ID] = &d
		}
	}
	a.detours = detour.New(a.config.StatePath("detours.json"), a.config.Network, byID)
}

// placed is a detour of a's as it is now; nil: there is none.
func placed(a *Agent, id string) *detour.Detour {
	d, ok := a.detours.Get(id)
	if !ok {
		return nil
	}
	return &d
}

// Two addresses of a guest: one whose home is here, one whose home is elsewhere.
var (
	oursHere   = netip.MustParseAddr("10.1.1.10")
	theirsHere = netip.MustParseAddr("10.2.1.10")
	theirs6    = netip.MustParseAddr("fd00:2:1::a")
)
