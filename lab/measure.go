package lab

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"

	"godwit/lab/scenario"
	"godwit/lab/topo"
	"godwit/lab/traffic/record"
	"godwit/netstate/meter"
	"godwit/netstate/netns"
)

// edges count the packets of guests at the sites' edges, as they are on the wire:
// on the routers' ports towards the hosts. What passed there towards a guest and
// what reached it differ by what a host, tap, tunnel or hold lost; and so back.
type edges struct {
	mu     sync.Mutex
	meters []*meter.Meter
	guests subnets
}

// subnets are those of all sites' guests.
type subnets []netip.Prefix

// guestsOf are those of a scenario.
func guestsOf(s *scenario.Scenario) (all subnets) {
	for i := range s.Sites {
		for _, net := range []netip.Prefix{s.Sites[i].GuestV4, s.Sites[i].GuestV6} {
			if net.IsValid() {
				all = append(all, net)
			}
		}
	}
	return all
}

// has says whether the other end of a guest's packet is a guest as well, and no client. Two of one host meet on its
// bridge: what they say passes an edge or none, as they move.
func (s subnets) has(peer netip.Addr) bool {
	return slices.ContainsFunc(s, func(net netip.Prefix) bool { return net.Contains(peer) })
}

// openEdges puts a meter on every port.
func openEdges(t *topo.Topo, guests subnets) (*edges, error) {
	e := &edges{guests: guests}
	for site, edge := range t.EdgeDevices() {
		err := netns.Do(edge.Namespace, func() error {
			for _, device := range edge.Devices {
				m, err := meter.Open(device)
				if err != nil {
					return err
				}
				e.meters = append(e.meters, m)
			}
			return nil
		})
		if err != nil {
			e.close()
			return nil, fmt.Errorf("count packets at the edge of %s: %w", site, err)
		}
	}
	return e, nil
}

func (e *edges) close() {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, m := range e.meters {
		m.Close()
	}
	e.meters = nil
}

// flowCount is how many packets of TCP and UDP went each way.
type flowCount struct{ toGuest, fromGuest int64 }

// protocols that are counted: what clients use. ICMP from routers and hosts would
// reach the guest without passing an edge.
const (
	protoTCP = 6
	protoUDP = 17
)

// counted says whether a packet is a client's. A prober asks the next address
// before the guest has it; those packets are lost on purpose.
func counted(proto uint8, port uint16) bool {
	probe := port == record.PortEcho || port >= record.PortProbeFirst && port <= record.PortProbeLast
	return proto == protoTCP || proto == protoUDP && !probe
}

// count is what passed the edges to and from each of addrs since they were opened.
func (e *edges) count(addrs map[netip.Addr]bool) (map[netip.Addr]flowCount, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.meters) == 0 {
		return nil, errors.New("no meters at the edges")
	}
	out := map[netip.Addr]flowCount{}
	for _, m := range e.meters {
		counts, err := m.Read()
		if err != nil {
			return nil, err
		}
		for key, n := range counts {
			e.guests.add(out, addrs, key, n)
		}
	}
	return out, nil
}

// add adds what an edge has counted of a flow to what was counted of addrs.
func (s subnets) add(out map[netip.Addr]flowCount, addrs map[netip.Addr]bool, key meter.Key, n meter.Count) {
	switch {
	case !counted(key.Proto, key.Port):
	case key.Out && addrs[key.Dst] && !s.has(key.Src):
		out[key.Dst] = out[key.Dst].plus(flowCount{toGuest: int64(n.Packets)})
	case !key.Out && addrs[key.Src] && !s.has(key.Dst):
		out[key.Src] = out[key.Src].plus(flowCount{fromGuest: int64(n.Packets)})
	}
}
