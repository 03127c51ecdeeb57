package detour

import (
	"net/netip"
	"testing"

	"godwit/agent/config"
	"godwit/netstate"
)

// TestPublishedWhileHere: a visiting address is published where the guest answers for it:
// not one that is at home here, and no more once packets are led on.
func TestPublishedWhileHere(t *testing.T) {
	in := detourOf("t1", 1, nil, []netstate.Visiting{{Addr: theirs, Tunnel: "t1", Taps: []string{"t0a"}}, {Addr: ours, Taps: []string{"t0a"}}}, "t0a")
	s := &Store{byID: map[string]*Detour{"t1": in}}
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
	in.Publish(config.Routes{Table: 6700, Direct: true})
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

// TestStand: what a host stands for takes the place of what is left of an earlier time, and
// is sent away at once.
func TestStand(t *testing.T) {
	earlier := &Detour{ID: "m-00000001", Guest: "web", Away: []netstate.Away{{Addr: other, Tunnel: "gwt-1"}, {Addr: ours, Tunnel: "gwt-1", Active: true}}}
	others := &Detour{ID: "m-00000002", Guest: "db", Away: []netstate.Away{{Addr: other, Tunnel: "gwt-2"}}}
	d := detourOf("gwt-3", 3, nil, nil)
	d.Standing = []netstate.Away{{Addr: other}}
	stood := d.Stand(map[string]*Detour{"1": earlier, "2": others, "3": d})
	if len(stood) != 1 || len(d.Standing) != 0 || len(d.Away) != 1 || !d.Away[0].Active || d.Away[0].Tunnel != "gwt-3" {
		t.Errorf("%v, %+v", stood, d)
	}
	if len(earlier.Away) != 1 || earlier.Away[0].Addr != ours || len(others.Away) != 1 {
		t.Errorf("earlier %+v, of another guest %+v", earlier.Away, others.Away)
	}
}
