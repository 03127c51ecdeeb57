package netstate

import (
	"encoding/binary"
	"hash/fnv"
	"net"
	"net/netip"

	"github.com/google/nftables/expr"
)

// While its guest still runs elsewhere (Visiting.Waits), an address is led to the tap here for what comes out
// of the tunnel alone. Who is here and talks to the guest must find it where it is: this host, which has its
// own way there, and neighbours, by the guest's MAC, as both hosts may be on one LAN. So the way out of the
// tunnel has a routing table, a next hop and a MAC of its own, which becomes the guest's at the tap.

// waits lists what leads to the tap meanwhile.
func waits(bridge string, v Visiting) []resource {
	mac := waitingMAC(v.MAC).String()
	return []resource{
		forwarding{v.Tap, mac},
		neighbour{bridge, waitingHop(v), mac},
		route{host(v.Addr), tableOf(v.Addr, PriorityArriving), bridge, waitingHop(v)},
		policyRule{dst: v.Addr, iif: v.Tunnel, priority: PriorityArriving, own: true},
	}
}

// waitingRule makes frames for that MAC the guest's. It stays when the wait is over, for those under way.
func waitingRule(v Visiting) bridgeRule {
	mac := waitingMAC(v.MAC)
	return bridgeRule{words("waits", "mac", mac.String(), "tap", v.Tap, "guest", v.MAC.String()), join(oif(v.Tap), etherDst(mac), setEtherDst(v.MAC))}
}

// waitingMAC is an individual, locally administered one (IEEE 802, §8.2), which no frame on a wire has.
func waitingMAC(mac net.HardwareAddr) net.HardwareAddr {
	return binary.BigEndian.AppendUint32(net.HardwareAddr{0x06, Protocol}, hashOf(mac))
}

// waitingHop is an address that nobody has: of 240.0.0.0/4, which is reserved, or of the link.
func waitingHop(v Visiting) netip.Addr {
	n := hashOf(v.MAC)
	if v.Addr.Is4() {
		return netip.AddrFrom4([4]byte(binary.BigEndian.AppendUint32(nil, 0xf<<28|n>>5)))
	}
	hop := [16]byte{0xfe, 0x80, 8: 0x06, 9: Protocol}
	binary.BigEndian.PutUint32(hop[12:], n)
	return netip.AddrFrom16(hop)
}

func hashOf(mac net.HardwareAddr) uint32 {
	h := fnv.New32a()
	h.Write(mac)
	return h.Sum32()
}

func setEtherDst(mac net.HardwareAddr) []expr.Any {
	return []expr.Any{
		&expr.Immediate{Register: 1, Data: mac},
		&expr.Payload{OperationType: expr.PayloadWrite, SourceRegister: 1, Base: expr.PayloadBaseLLHeader, Offset: 0, Len: 6},
	}
}
