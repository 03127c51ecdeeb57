package qga

import (
	"fmt"
	"net"
	"net/netip"
	"strings"

	"godwit/vm/guest"
)

// The scripts make the same state as our own program (cmd/guest/address), by iproute2
// and in the same order; each may be run again. What goes into them is typed: MACs,
// addresses, numbers.
type script struct{ strings.Builder }

// rulePriority is where our source rules are: as cmd/guest/address has it.
const rulePriority = 10000

// keepTables is added to a NIC's table for the addresses that it keeps for others.
const keepTables = 1000

func (s *script) line(format string, args ...any) { fmt.Fprintf(s, format+"\n", args...) }

// functions are what the scripts share. Nothing that is missing already is an error.
func (s *script) functions() {
	s.line(`set -e
nic() { n=$(ip -o link show | sed -n "s/^[0-9]*: \([^:@]*\)[:@].*link\/ether $1 .*/\1/p" | head -n1); [ -n "$n" ] || { echo "no NIC has the MAC $1" >&2; exit 1; }; echo $n; }
put() { if [ -e /proc/sys/net/$1 ]; then echo $2 >/proc/sys/net/$1; fi; }
lead() { ip $1 rule show from $2 | grep -q "^%[1]d:.* lookup $3\( \|$\)" || ip $1 rule add from $2 lookup $3 priority %[1]d
	ip $1 rule show from $2 | sed -n "s/^%[1]d:.* lookup \([0-9]*\).*/\1/p" | while read t; do [ $t = $3 ] || ip $1 rule del from $2 lookup $t priority %[1]d; done; }
unlead() { ip $1 rule show from $2 | sed -n "s/^%[1]d:.* lookup \([0-9]*\).*/\1/p" | while read t; do ip $1 rule del from $2 lookup $t priority %[1]d
	ip $1 rule show | grep -q "lookup $t\( \|$\)" || ip $1 route flush table $t; done; }
default() { ip $1 route replace default via $2 dev $3 onlink table $4 $5
	ip $1 route show default table $4 | grep -v " dev $3\( \|$\)" | while read r; do ip $1 route del $r table $4; done; }
dropaddr() { ip -o addr show $1 to $2 | while read n d f a r; do ip addr del $a dev $d; done; }
withdraw() { ip mptcp endpoint show 2>/dev/null | sed -n "s/^$1 .*id \([0-9]*\).*/\1/p" | while read i; do ip mptcp endpoint delete id $i; done
	ip mptcp endpoint delete id 0 $1 2>/dev/null || true; }`, rulePriority)
}

// newScript begins one about the NIC with that MAC, which is $d in it.
func newScript(mac string) (*script, error) {
	hardware, err := net.ParseMAC(mac)
	if err != nil || len(hardware) != 6 {
		return nil, fmt.Errorf("find NIC: %q is not a MAC address", mac)
	}
	s := &script{}
	s.functions()
	s.line("d=$(nic %s)", hardware)
	return s, nil
}

// family is iproute2's option for an address's family.
func family(addr netip.Addr) string {
	if addr.Is4() {
		return "-4"
	}
	return "-6"
}

func (s *script) unlead(addr netip.Addr)   { s.line("unlead %s %s", family(addr), addr) }
func (s *script) withdraw(addr netip.Addr) { s.line("withdraw %s", addr) }

// settings are what two NICs on one LAN need; see raise in cmd/guest/address.
var settings = map[string]string{
	"ipv4/conf/$d/rp_filter":            "0",
	"ipv4/conf/$d/arp_ignore":           "1",
	"ipv4/conf/$d/arp_announce":         "2",
	"ipv4/neigh/$d/locktime":            "0",
	"ipv6/conf/$d/disable_ipv6":         "0",
	"ipv6/conf/$d/accept_dad":           "0",
	"ipv6/conf/$d/accept_ra":            "0",
	"ipv6/conf/$d/ndisc_notify":         "1",
	"ipv6/conf/$d/router_solicitations": "0",
	// rp_filter takes the stricter of the NIC's and this; 2 is loose.
	"ipv4/conf/all/rp_filter": "2",
	"mptcp/add_addr_timeout":  "1",
	"mptcp/blackhole_timeout": "0",
}

// configureScript is guest.Configure, and the ids of the endpoints that it announces.
// It prints the device's name.
func configureScript(p guest.Configure) (string, []uint8, error) {
	s, err := newScript(p.MAC)
	if err != nil {
		return "", nil, err
	}
	for key, value := range settings {
		s.line("put %s %s", key, value)
	}
	if p.TxQueueLen > 0 {
		s.line("ip link set $d txqueuelen %d", p.TxQueueLen)
	}
	s.line("ip link set $d up")
	for _, prefix := range p.Addrs {
		gateway := p.GatewayV4
		if prefix.Addr().Is6() {
			gateway = p.GatewayV6
		}
		s.place(prefix, fmt.Sprint(p.Table), gateway.String(), gateway.IsValid())
	}
	if p.Main {
		s.mainBy()
	}
	var ids []uint8
	if p.Endpoint != 0 {
		ids = s.signal(p.Addrs, p.Endpoint)
	}
	s.line("echo $d")
	return s.String(), ids, nil
}

// place adds an address to $d with its source route. Route and rule stand first, as in
// cmd/guest/address.
func (s *script) place(prefix netip.Prefix, table, gateway string, routed bool) {
	addr, f := prefix.Addr(), family(prefix.Addr())
	if routed {
		s.line("default %s %s $d %s", f, gateway, table)
	}
	s.line("lead %s %s %s", f, addr, table)
	flag := ""
	if addr.Is6() {
		flag = " nodad"
	}
	s.line("ip addr replace %s dev $d%s", prefix, flag)
	if !prefix.IsSingleIP() {
		s.line("ip %s route replace %s dev $d table %s scope link src %s", f, prefix.Masked(), table, addr)
	}
}

// mainBy makes the gateways of $d's source routes the default of the main table.
func (s *script) mainBy() {
	s.line(`for f in -4 -6; do
	ip $f -o addr show dev $d scope global | while read n x i a r; do
		a=${a%%/*}
		t=$(ip $f rule show from $a | sed -n "s/^%d:.* lookup \([0-9]*\).*/\1/p" | head -n1)
		[ -n "$t" ] || continue
		g=$(ip $f route show default table $t dev $d | sed -n "s/.* via \([^ ]*\).*/\1/p" | head -n1)
		[ -n "$g" ] || continue
		default $f $g $d main "src $a"
		break
	done
done`, rulePriority)
}

// signal announces the first address of each family: IPv4 by id, IPv6 by id+1. Where
// the kernel has no MPTCP there is nobody to announce to.
func (s *script) signal(addrs []netip.Prefix, id uint8) (ids []uint8) {
	s.line("if [ -e /proc/sys/net/mptcp/enabled ]; then")
	s.line(`ip mptcp limits | grep -q "subflows [89]" || ip mptcp limits set subflow 8`)
	for _, v6 := range []bool{false, true} {
		for _, p := range addrs {
			if p.Addr().Is6() != v6 {
				continue
			}
			n := id
			if v6 {
				n++
			}
			s.line(`if ! ip mptcp endpoint show id %[1]d 2>/dev/null | grep -q "^%[2]s id %[1]d "; then
	ip mptcp endpoint delete id %[1]d 2>/dev/null || true
	ip mptcp endpoint add %[2]s dev $d id %[1]d signal
fi`, n, p.Addr())
			ids = append(ids, n)
			break
		}
	}
	s.line("fi")
	return ids
}

// retireScript is guest.Retire; bound says that a connection has nothing but addresses
// that are kept, so that their endpoints stay.
func retireScript(p guest.Retire, bound bool) (string, error) {
	s, err := newScript(p.MAC)
	if err != nil {
		return "", err
	}
	s.line("old=$d")
	if !bound {
		for _, id := range p.EndpointIDs {
			s.line("ip mptcp endpoint delete id %d 2>/dev/null || true", id)
		}
		for _, addr := range p.Addrs {
			s.withdraw(addr)
		}
		// Their last segments leave by the address that goes.
		s.line("sleep 0.2")
	}
	if p.NewMAC != "" {
		if err := s.takeOver(p); err != nil {
			return "", err
		}
	} else if p.Keep {
		return "", fmt.Errorf("retire %s: keeping addresses needs new_mac", p.MAC)
	}
	for _, addr := range p.Addrs {
		if !p.Keep {
			s.unlead(addr)
		}
		if !p.Keep || !p.Stay {
			s.line("dropaddr \"dev $old\" %s", addr)
		}
	}
	if !p.Stay {
		s.line("ip link set $old down")
	}
	return s.String(), nil
}

// takeOver moves what must live on to the new NIC: the main route, and the addresses
// to keep, by the gateway of that NIC's own table unless another is named.
func (s *script) takeOver(p guest.Retire) error {
	hardware, err := net.ParseMAC(p.NewMAC)
	if err != nil || len(hardware) != 6 {
		return fmt.Errorf("retire: %q is not a MAC address", p.NewMAC)
	}
	s.line("d=$(nic %s)", hardware)
	s.mainBy()
	if !p.Keep {
		return nil
	}
	for _, addr := range p.Addrs {
		f, gateway := family(addr), p.KeepGatewayV4
		if addr.Is6() {
			gateway = p.KeepGatewayV6
		}
		// The NIC's own table is that of an address which it has with its subnet.
		s.line(`t=$(ip %s rule show | sed -n "s/^%d:.* lookup \([0-9]*\).*/\1/p" | while read t; do [ $t -ge %d ] || ! ip %s route show default table $t | grep -q " dev $d\( \|$\)" || echo $t; done | head -n1)
[ -n "$t" ] || { echo "$d is not configured" >&2; exit 1; }`, f, rulePriority, keepTables, f)
		via := "$(ip " + f + ` route show default table $t dev $d | sed -n "s/.* via \([^ ]*\).*/\1/p" | head -n1)`
		if gateway.IsValid() {
			via = gateway.String()
		}
		table := "$((t + " + fmt.Sprint(keepTables) + "))"
		if p.KeepTable != 0 {
			table = fmt.Sprint(p.KeepTable)
		}
		s.place(netip.PrefixFrom(addr, addr.BitLen()), table, via, true)
	}
	return nil
}
