package lab

import (
	"fmt"
	"net"
	"strings"

	"godwit/netstate"
	"godwit/netstate/netns"
)

// agentLeftovers names what the agents left on their hosts, now that they have
// ended: kernel state of ours, taps and tunnels, processes. What the lab itself
// made there goes with the namespaces.
func (w *world) agentLeftovers() []string {
	var left []string
	for name, a := range w.agents {
		left = append(left, w.diskLeftovers(a)...)
		ns := a.host.Namespace
		err := netns.Do(ns, func() error {
			found, err := netstate.Found()
			if err != nil {
				return err
			}
			for guest := range found.States {
				left = append(left, fmt.Sprintf("host %s: network state of guest %s", name, guest))
			}
			for _, stray := range found.Stray {
				left = append(left, fmt.Sprintf("host %s: %s", name, stray))
			}
			devices, err := net.Interfaces()
			if err != nil {
				return err
			}
			for _, d := range devices {
				if strings.HasPrefix(d.Name, "gw") {
					left = append(left, fmt.Sprintf("host %s: device %s", name, d.Name))
				}
			}
			return nil
		})
		if err != nil {
			left = append(left, fmt.Sprintf("host %s: %v", name, err))
		}
		for _, pid := range netns.Processes(ns) {
			left = append(left, fmt.Sprintf("host %s: process %d", name, pid))
		}
	}
	return left
}
