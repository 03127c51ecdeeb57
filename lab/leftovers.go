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
