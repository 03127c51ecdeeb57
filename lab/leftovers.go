package lab

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"

	"godwit/agent/leftover"
	"godwit/internal/clock"
	"godwit/netstate"
	"godwit/netstate/netns"
)

// ownerlessTime is what an agent may take to do away with what has just lost its owner.
const ownerlessTime = 10 * time.Second

// takeDown ends a run whose leases have ended, and returns what it, or a migration before, left.
func (r *run) takeDown(ctx context.Context, stopReaper func()) []string {
	return append(r.w.forgotten(ctx, r.settling), r.w.close(stopReaper)...)
}

// forgotten names what belongs to nothing on hosts whose agents run, when leases have ended: an undo, or an end, forgot
// it, and those agents would take it away as they end, unseen. What a guest, a migration without an outcome or a lease
// that lasts has is theirs; what an agent that was killed was just making is not known before it is started again.
// Disks are looked at later, by where their guests are, and files that are half written are not told from others.
func (w *world) forgotten(ctx context.Context, patience time.Duration) []string {
	for until := time.Now().Add(patience); ; {
		var left []string
		for name, a := range w.agents {
			if a.runsAgent() {
				left = append(left, a.forgotten(ctx, name)...)
			}
		}
		if len(left) == 0 || time.Now().After(until) || !clock.Sleep(ctx, 100*time.Millisecond) {
			slices.Sort(left)
			return left
		}
	}
}

func (h *hostAgent) forgotten(ctx context.Context, name string) (left []string) {
	err := netns.Do(h.host.Namespace, func() error {
		things, err := leftover.Find(ctx, &h.config)
		for _, t := range things {
			if t.Left() && t.Kind != leftover.Disk && t.Kind != leftover.File {
				left = append(left, "host "+name+", before its agent ended: "+t.String())
			}
		}
		return err
	})
	if err != nil {
		left = append(left, "host "+name+", before its agent ended: "+err.Error())
	}
	return left
}

// agentLeftovers names what the agents left on their hosts, now that they have
// ended: kernel state of ours, taps and tunnels, processes. What the lab itself
// made there goes with the namespaces.
func (w *world) agentLeftovers() []string {
	var left []string
	for name, a := range w.agents {
		left = append(left, w.diskLeftovers(a)...)
		var here []string
		err := netns.Do(a.host.Namespace, func() (err error) { here, err = kernelLeftovers(); return err })
		if err != nil {
			here = append(here, err.Error())
		}
		for _, pid := range netns.Processes(a.host.Namespace) {
			here = append(here, fmt.Sprintf("process %d", pid))
		}
		for _, thing := range here {
			left = append(left, "host "+name+": "+thing)
		}
	}
	return left
}

// kernelLeftovers names what is ours in this namespace; on an error, what was found until then.
func kernelLeftovers() (left []string, err error) {
	found, err := netstate.Found()
	if err != nil {
		return nil, err
	}
	for guest := range found.States {
		left = append(left, "network state of guest "+guest)
	}
	for _, stray := range found.Stray {
		left = append(left, fmt.Sprint(stray))
	}
	devices, err := net.Interfaces()
	for _, d := range devices {
		if strings.HasPrefix(d.Name, "gw") {
			left = append(left, "device "+d.Name)
		}
	}
	return left, err
}
