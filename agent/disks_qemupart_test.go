package agent

import (
	"context"
	"testing"

	"godwit/agent/care"
	"godwit/agent/guests"
	"godwit/migration"
	"godwit/vm"
)

// told is a QEMU that notes the limits that it is told.
type told struct {
	vm.Machine
	limits []int64
}

func (q *told) SetBandwidth(_ context.Context, bytesPerSecond int64) error {
	q.limits = append(q.limits, bytesPerSecond)
	return nil
}

// TestQEMUIsToldItsLimit: where its bytes pass through us it is told of each change, or it would send no more
// than it began with; where memory takes our own data path it has none; held by low bandwidth it keeps the first.
func TestQEMUIsToldItsLimit(t *testing.T) {
	for name, c := range map[string]struct {
		transfer string
		hold     vm.Hold
		want     int
	}{
		"forwarder":             {"qemu-tcp", vm.HoldAck, 2},
		"own":                   {"lanes", vm.HoldAck, 0},
		"held by low bandwidth": {"qemu-tcp", vm.HoldLowBandwidth, 0},
	} {
		q := &told{}
		m := &outgoing{plan: migration.Plan{Transfer: c.transfer}, guest: guests.New(care.Held{}, q), work: &sourceWork{}}
		m.bandwidth.Set(800)
		m.work.facts.Hold = c.hold
		if got := m.beginQEMUPart(); got != 100 {
			t.Errorf("%s: begins with %d", name, got)
		}
		for _, bits := range []int64{800, 1600, 1600, 0} {
			m.bandwidth.Set(bits)
			if err := m.limitQEMU(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if len(q.limits) != c.want || c.want == 2 && (q.limits[0] != 200 || q.limits[1] != 0) {
			t.Errorf("%s: told %v", name, q.limits)
		}
	}
}
