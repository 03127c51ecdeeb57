package agent

import (
	"net/netip"
	"testing"

	"godwit/agent/config"
	"godwit/netstate"
)

// TestPublishedWhileHere: a visiting address is published where the guest answers for it:
// not one that is at home here, and no more once packets are led on.
func TestPublishedWhileHere(t *testing.T) {
	in := detourOf("t1", 1, nil, []netstate.Visiting{{Addr: theirs, Tunnel: "t1"}, {Addr: ours}}, "t0a")
	s := &detours{byID: map[string]*detour{"t1": in}}
	published := func() (all []netip.Addr) {
		for _, v := range s.want("web").Visiting {
			if v.Publish == 6700 && v.Direct {
				all = append(all, v.Addr)
			}
		}
		return all
	}
	if all := published(); len(all) > 0 {
		t.Errorf("published before the guest runs: %v", all)
	}
	publishIn(in.Visiting, config.Routes{Table: 6700, Direct: true})
	if all := published(); len(all) != 1 || all[0] != theirs {
		t.Errorf("published: %v, want %v", all, theirs)
	}
	on := detourOf("t2", 2, []netstate.Away{{Addr: theirs, Tunnel: "t2"}}, nil)
	s.byID["t2"] = on
	if len(published()) != 1 {
		t.Error("withdrawn before the flip")
	}
	on.Away[0].Active = true
	if all := published(); len(all) > 0 {
		t.Errorf("published after the flip: %v", all)
	}
}
