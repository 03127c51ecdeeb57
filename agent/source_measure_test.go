package agent

import (
	"testing"

	"godwit/agent/config"
	"godwit/agent/talk"
	"godwit/agent/uplinks"
	"godwit/migration"
	"godwit/vm"
)

// TestWireOfQEMUsOwn: what QEMU sends by its own connections outside tunnels is a part of what this host sends to the
// other, beside what another migration sends there: neither has all. In tunnels of its own it is not among that.
func TestWireOfQEMUsOwn(t *testing.T) {
	for insecure, want := range map[bool]float64{true: 0.75, false: 0} {
		a := &Agent{config: &config.Config{}}
		m := &outgoing{a: a, plan: migration.Plan{Transfer: "qemu-xbzrle", To: "rome", Insecure: insecure}, work: &sourceWork{prepared: talk.Prepared{}}}
		share, other := a.shares.Join("rome"), a.shares.Join("rome")
		m.work.wire.Begin(nil, &uplinks.Sent{}, share)
		other.Follow(func() int64 { return 100 })
		m.followQEMU()
		m.copyLook(vm.Progress{Rounds: 1, Transferred: 300}, 0)
		if part, _ := share.Settle(); part != want {
			t.Errorf("insecure %v: it has a part of %v, want %v", insecure, part, want)
		}
		if part, _ := other.Settle(); part != 1-want {
			t.Errorf("insecure %v: the other has a part of %v, want %v", insecure, part, 1-want)
		}
	}
}
