package agent

import (
	"time"

	"godwit/policy"
	"godwit/vm"
)

// seedLook is what the mirrors together say. Before one begins it looks through its disk, and knows of nothing to copy.
func seedLook(at time.Time, states []vm.MirrorState) policy.SeedLook {
	look := policy.SeedLook{At: at, Ready: true}
	for _, s := range states {
		look.Done, look.Remaining = look.Done+s.Done, look.Remaining+s.Remaining
		look.Ready = look.Ready && s.Ready
		look.Early = look.Early || !s.Ready && s.Done+s.Remaining == 0
	}
	return look
}
