package netstate_test

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"godwit/netstate/internal/nettest"
)

// TestNeighbourBehindAStatefulRouter: a client in the subnet that the guest left keeps it where the subnet's
// router forwards nothing of which it did not see the beginning: it sees what goes to no neighbour.
// A neighbour that answers its own subnet alone is found, and so is one for whom another answers.
func TestNeighbourBehindAStatefulRouter(t *testing.T) {
	w := newWorld(t, "wireguard", "pa")
	w.peer("ha", "pa")
	w.Run("pa", "sh", "-c", "echo 2 > /proc/sys/net/ipv4/conf/eth0/arp_ignore")
	w.answersItsOwn()
	w.load("r", `table inet sf { chain f { type filter hook forward priority filter; policy drop; ct state established,related accept; tcp flags & (syn|ack|rst|fin) == syn accept; meta l4proto { udp, icmp, icmpv6 } accept; }; }`)
	w.IP("ga", "link set dev eth0 down")
	before := w.dumps()
	w.set("hb", abroad())
	w.set("ha", home(false))
	w.flip(true)
	w.stands("ha", home(true), true)
	for _, addr := range []netip.Addr{guest4, guest6} {
		for _, client := range []string{"pa", "c"} {
			if !w.opens(client, "gb", addr, long) {
				t.Errorf("%s loses %s", client, addr)
			}
		}
	}

	other := netip.MustParseAddr("10.1.1.7")
	w.Run("pa", "sh", "-ec", "echo 0 > /proc/sys/net/ipv4/neigh/eth0/proxy_delay; ip link add d0 type veth peer name d1; ip link set d1 up; ip link set d0 up; ip route add 10.1.1.7 dev d0; ip neigh add proxy 10.1.1.7 dev eth0")
	w.IP("gb", "neigh replace 10.1.1.7 dev eth0 nud permanent lladdr "+peerMAC.String())
	w.answersTo("gb", other, short)
	nettest.Eventually(t, "the host finds one for whom another answers", 3*time.Second, func() bool {
		return strings.Contains(w.Run("ha", "ip", "neigh", "show", other.String(), "dev", "br-guest"), peerMAC.String())
	})

	older := home(true) // what an agent wrote that did not know the subnet
	for i := range older.Away {
		older.Away[i].Subnet = netip.Prefix{}
	}
	w.set("ha", older)
	for _, addr := range []netip.Addr{guest4, guest6} {
		if !w.opens("c", "gb", addr, long) {
			t.Errorf("c loses %s without the subnet", addr)
		}
		if w.opens("pa", "gb", addr, short) {
			t.Errorf("the router lets what %s says through, which shows nothing", addr)
		}
	}
	w.cleared(before, "web")
}
