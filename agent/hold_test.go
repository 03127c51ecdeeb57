package agent

import (
	"testing"

	"godwit/agent/care"
	"godwit/agent/guests"
	"godwit/agent/talk"
	"godwit/migration"
	"godwit/vm"
)

// allowed is a forwarder that was told, or was not.
type allowed struct {
	forwarder
	told bool
}

func (a *allowed) AllowSwitchover() { a.told = true }

// TestAckOnlyToASourceThatWaitsForIt: a source's QEMU before 8.1 does not know SWITCHOVER_ACK, and
// its migration fails when it comes, after the guest was stopped. So a newer destination's is not
// told to send one, and what comes all the same is not passed on.
func TestAckOnlyToASourceThatWaitsForIt(t *testing.T) {
	for hold, want := range map[vm.Hold]bool{vm.HoldAck: true, vm.HoldLowBandwidth: false} {
		facts := vm.Facts{Hold: hold}
		in := &incoming{
			plan: migration.Plan{Transfer: "lanes"},
			work: &destinationWork{guest: guests.New(care.Held{}, nil), preparation: talk.Preparation{Facts: facts}},
		}
		if opts := in.options(); opts.HoldSwitchover != want {
			t.Errorf("%s: the destination acknowledges: %v", hold, opts.HoldSwitchover)
		}
		gate := &allowed{}
		out := &outgoing{work: &sourceWork{facts: facts, forward: gate}}
		if out.allowSwitchover(); gate.told != want {
			t.Errorf("%s: the acknowledgement passes: %v", hold, gate.told)
		}
	}
}
