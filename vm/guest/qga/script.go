package qga

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"time"

	"godwit/vm/guest"
)

// The scripts make the same state as our own program (cmd/guest/address), by iproute2
// and in the same order; each may be run again. What goes into them is typed: MACs,
// addresses, numbers.
type script struct{ strings.Builder }

// rulePriority is where our source rules are: as cmd/guest/address has it.
const rulePriority = 10000

// mostEndpoints is how many the kernel's path manager takes (MPTCP_PM_ADDR_MAX).
const mostEndpoints = 8

// usualMTU is that of Ethernet, which NICs have unless somebody changes it.
const usualMTU = 1500

// keepTables is added to a NIC's table for the addresses that it keeps for others.
const keepTables = 1000

func (s *script) line(format string, args ...any) { fmt.Fprintf(s, format+"\n", args...) }

// functions are what the scripts share. A program that is started costs a tenth of a
// second in an emulated guest, and connections wait: so what the shell can do it does,
// and ip gets many commands at once ($b, carried out by go).
//
//	nic MAC [alone]      the NIC of that MAC, which what lies over it (guest.KindsAbove) has as well; no part of that
//	loosen               make rp_filter a loose one where it is strict for some NIC, as loosen in cmd/guest; off stays off. (A shell that reads
//	                     byte by byte finds no end of a setting's line, and read fails there, having read)
//	try COMMAND          again and again, for some seconds, until it works
//	tables ADDR          the tables that our rules lead packets from ADDR to: those that say so, or have a table of ours
//	owns TABLE           whether a NIC's own addresses are led to it, and not what it keeps for others
//	lead ADDR TABLE      … make it that one: the new rule stands before others go
//	unlead ADDR          … make it none, and empty tables that no rule leads to any more
//	isnic DEVICE         whether it is a NIC; VPNs' devices are none
//	rank F               the metric of the first default route out of a NIC, or the next one that other
//	                     devices' have not; where these alone have routes, one behind them all
//	default F GW TABLE   everything of a family by GW out of $d; other ways go, in main those out of NICs (IPv6
//	                     keeps them, and takes no gateway as on the link whose subnet is on another NIC)
//	named ROUTE…         what of a route, as ip shows it, ip takes as its name: it shows more
//	place …              an address with its source route, see place
//	announce ADDR ID     have peers told of it by that endpoint, which is added to $ids; unless there is no room beside others'
//	drop ADDR DEVICE     take it from that device, or from all; alone, see dropAlone in cmd/guest/address
func (s *script) functions() {
	s.line(`set -e
b=
go() { [ -z "$b" ] || printf "$b" | ip $1 -batch -; b=; }
try() { n=0; until "$@" 2>/dev/null; do n=$((n + 1)); if [ $n -gt 40 ]; then "$@"; return; fi; sleep 0.05; done; }
put() { [ ! -e /proc/sys/net/$1 ] || echo $2 >/proc/sys/net/$1; }
loosen() { for c in /proc/sys/net/ipv4/conf/*/rp_filter; do read -r v <$c || :; if [ "$v" = 1 ]; then put ipv4/conf/all/rp_filter 2; return; fi; done; }
nic() { ip -d -o link show | { while read -r i n l; do case "$l " in %[5]s) ;; *"link/ether $1 "*) n=${n%%%%[:@]*}
		[ -z "$2" ] || case "$l " in %[6]s) echo "$n is a part of another device, which takes what comes in by it; take it out of that" >&2; exit 1;; esac
		echo $n; exit 0;; esac; done
	echo "no NIC has the MAC $1" >&2; exit 1; }; }
family() { case $1 in *:*) echo -6;; *) echo -4;; esac; }
tables() { ip $(family $1) rule show from $1 | while read -r p x a y t r; do case "$p $r " in "%[1]d: "*"proto %[2]d "*) echo $t;;
	"%[1]d: "*) ! [ $t -ge %[3]d -a $t -lt %[4]d ] 2>/dev/null || echo $t;; esac; done; }
owns() { [ $1 -lt %[8]d ] || [ $1 -ge %[3]d -a $1 -lt %[9]d ]; }
lead() { have= more=
	for t in $(tables $1); do if [ $t = $2 ]; then have=1; else more="${more}rule del from $1 lookup $t priority %[1]d\n"; fi; done
	[ -n "$have" ] || more="rule add from $1 lookup $2 priority %[1]d protocol %[2]d\n$more"
	case $1 in *:*) go; b=$more; go -6;; *) b=$b$more;; esac; }
unlead() { for t in $(tables $1); do ip $(family $1) rule del from $1 lookup $t priority %[1]d
	if ip $(family $1) rule show | { while read -r p x a y u r; do [ "$u" != $t ] || exit 1; done; }; then ip $(family $1) route flush table $t; fi; done; }
isnic() { [ -z "$1" ] || [ $1 = $d ] || [ -e /sys/class/net/$1/device ] || [ -n "$(ip -o addr show dev $1 scope global | while read -r n e f a r; do tables ${a%%%%/*}; done)" ]; }
out() { o="$* "; case $o in *" dev "*) o=${o#* dev }; echo ${o%%%% *};; esac; }
rank() { ip $1 route show default table main | { m= v= x=0; while read -r r; do
	case "$r " in default*" metric "*) k=${r#* metric }; k=${k%%%% *};; default*) k=0;; *) continue;; esac
	if isnic "$(out $r)"; then [ ${m:-$k} -lt $k ] || m=$k; else v="$v $k "; [ $x -gt $k ] || x=$k; fi; done
	[ -n "$m" ] || [ -z "$v" ] || m=$((x + 1))
	while case "$v" in *" $m "*) ;; *) false;; esac; do m=$((m + 1)); done
	echo ${m:+metric $m}; }; }
default() { case $1$3 in *main) b="${b}route replace default via $2 dev $d onlink table $3 $4 $(rank $1)\n";;
	-4*) b="${b}route replace default via $2 dev $d onlink table $3 $4\n";;
	*) b="${b}route replace $2 dev $d table $3\nroute replace default via $2 dev $d table $3 $4\n";; esac
	if [ $1 = -6 ]; then go; ip -6 route show default table $3 | while read -r r; do case "$r " in *" dev $d "*) ;; *)
		[ $3 = main ] && ! isnic "$(out $r)" || ip -6 route del $(named $r) table $3;; esac; done; fi; }
named() { o="$*"; for w in expires linkdown dead; do o=${o%%%% $w*}; done; echo $o; }
drop() { ip -o addr show to $1 | while read -r n e f a r; do [ $e != ${2:-$e} ] || { put ipv4/conf/$e/promote_secondaries 1; ip addr del $a dev $e; }; done; }
withdraw() { ip mptcp endpoint show 2>/dev/null | while read -r a r; do r=${r#*id }; [ "$a" != $1 ] || ip mptcp endpoint delete id ${r%%%% *}; done
	ip mptcp endpoint delete id 0 $1 2>/dev/null || true; }
announce() { ip mptcp endpoint add $1 dev $d id $2 signal 2>/dev/null || case "$(ip mptcp endpoint show id $2 2>/dev/null) " in "$1 id $2 "*) ;;
	*) ip mptcp endpoint delete id $2 2>/dev/null || true; withdraw $1
		if [ $(ip mptcp endpoint show | wc -l) -ge %[7]d ]; then return; fi # connections stay on their old addresses
		ip mptcp endpoint add $1 dev $d id $2 signal;; esac
	ids="$ids $2"; }
mainly() { seen=
	ip -o addr show dev $d scope global | while read -r n e f c r; do
		case "$seen" in *$f*) continue;; esac
		f4=-4; [ $f = inet ] || f4=-6
		for t in $(tables ${c%%%%/*}); do
			owns $t || continue
			g=$(ip $f4 route show default table $t dev $d | { read -r x y via r; echo $via; })
			[ -n "$g" ] || continue
			seen="$seen $f"; default $f4 $g main "src ${c%%%%/*}"; break
		done
		go
	done; }`, rulePriority, guest.RuleProtocol, guest.FirstTable, guest.FirstTable+keepTables+guest.Tables, ofKind(""), ofKind("_slave"), mostEndpoints, keepTables, guest.FirstTable+keepTables)
}

// ofKind is a shell's pattern of links that lie over others, or, by that ending, are parts of those, as ip shows their
// details in one line.
func ofKind(ending string) string {
	var all []string
	for _, kind := range guest.KindsAbove {
		all = append(all, `*"\    `+kind+ending+` "*`)
	}
	return strings.Join(all, "|")
}

// newScript begins one about the NIC with that MAC, which is $d in it; how is nic's.
func newScript(mac, how string) (*script, error) {
	hardware, err := net.ParseMAC(mac)
	if err != nil || len(hardware) != 6 {
		return nil, fmt.Errorf("find NIC: %q is not a MAC address", mac)
	}
	s := &script{}
	s.functions()
	s.line("d=$(nic %s %s)", hardware, how)
	return s, nil
}

// family is iproute2's option for an address's family.
func family(addr netip.Addr) string {
	if addr.Is4() {
		return "-4"
	}
	return "-6"
}

func (s *script) unlead(addr netip.Addr)   { s.line("unlead %s", word(addr)) }
func (s *script) withdraw(addr netip.Addr) { s.line("withdraw %s", word(addr)) }

// word is an address as a script may have it. A zone may be any text, and is of the host that said it.
func word(addr netip.Addr) string { return addr.WithZone("").String() }

// settings are what two NICs on one LAN need; see raise in cmd/guest/address.
var settings = map[string]string{
	"ipv4/conf/$d/rp_filter":            "0",
	"ipv4/conf/$d/arp_ignore":           "1",
	"ipv4/conf/$d/arp_announce":         "2",
	"ipv4/neigh/$d/locktime":            "0",
	"ipv6/conf/$d/accept_dad":           "0",
	"ipv6/conf/$d/accept_ra":            "0",
	"ipv6/conf/$d/ndisc_notify":         "1",
	"ipv6/conf/$d/router_solicitations": "0",
	// The higher of the NIC's and these counts.
	"ipv4/conf/all/arp_ignore":   "1",
	"ipv4/conf/all/arp_announce": "2",
	"mptcp/add_addr_timeout":     "1",
	"mptcp/blackhole_timeout":    "0",
	"mptcp/stale_loss_cnt":       "1",
}

// configureScript is guest.Configure. It prints the device's name and the ids of the
// endpoints that it announces.
func configureScript(p guest.Configure) (string, error) {
	s, err := newScript(p.MAC, "alone")
	if err != nil {
		return "", err
	}
	s.line("ids=\nloosen")
	for key, value := range settings {
		s.line("put %s %s", key, value)
	}
	if slices.ContainsFunc(p.Addrs, func(p netip.Prefix) bool { return p.Addr().Is6() }) {
		s.line("put ipv6/conf/$d/disable_ipv6 0")
	}
	queue := ""
	if p.TxQueueLen > 0 {
		queue = fmt.Sprintf(" txqueuelen %d", p.TxQueueLen)
	}
	if p.MTU > 0 && p.MTU != usualMTU { // one that its hypervisor bounds keeps its own
		s.line("ip link set $d mtu %d 2>/dev/null || true", p.MTU)
	}
	s.line(`b="link set $d%s up\n"`, queue)
	for _, prefix := range p.Addrs {
		gateway := p.GatewayV4
		if prefix.Addr().Is6() {
			gateway = p.GatewayV6
		}
		via := ""
		if gateway.IsValid() {
			via = word(gateway)
		}
		s.place(prefix, fmt.Sprint(p.Table), via)
		if p.Main && via != "" {
			s.line(`default %s %s main "src %s"`, family(prefix.Addr()), via, prefix.Addr())
		}
	}
	s.line("go")
	if p.Endpoint != 0 {
		s.signal(p.Addrs, p.Endpoint)
	}
	s.line("echo $d $ids")
	return s.String(), nil
}

// place adds an address to $d with its source route. Route and rule stand first, as in
// cmd/guest/address. via "" is no gateway.
func (s *script) place(prefix netip.Prefix, table, via string) {
	addr := prefix.Addr()
	if via != "" {
		s.line("default %s %s %s", family(addr), via, table)
	}
	s.line("lead %s %s", addr, table)
	flag := ""
	if addr.Is6() {
		flag = " nodad"
	}
	s.line(`b="${b}addr replace %s dev $d%s\n"`, prefix, flag)
	route := fmt.Sprintf("route replace %s dev $d table %s scope link src %s", prefix.Masked(), table, addr)
	switch {
	case prefix.IsSingleIP():
	case addr.Is4():
		s.line(`b="${b}%s\n"`, route)
	default: // the kernel takes a moment until it takes the address for its own
		s.line("go; try ip -6 %s", route)
	}
}

// signal announces the first address of each family: IPv4 by id, IPv6 by id+1, or by the
// next pair of ids of which others' endpoints have none (see freePair in
// cmd/guest/address); $ids are those. Where the kernel has no MPTCP there is nobody to
// announce to.
func (s *script) signal(addrs []netip.Prefix, id uint8) {
	s.line("if [ -e /proc/sys/net/mptcp/enabled ]; then")
	s.line("ip mptcp limits set subflow 8")
	var own []string
	for _, p := range addrs {
		own = append(own, p.Addr().String())
	}
	s.line(`known=$(ip mptcp endpoint show) i=%d
free() { echo "$known" | while read -r a r; do case " $r " in *" id $1 "*) case " %s " in *" $a "*) ;; *)
	case " $r " in *" subflow "*) exit 1;; esac; [ -z "$(ip -o addr show to $a)" ] || exit 1;; esac;; esac; done; }
until free $i && free $((i + 1)); do i=$((i + 2)); [ $i -le 241 ] || i=1; done`, id, strings.Join(own, " "))
	for n, v6 := range []bool{false, true} {
		for _, p := range addrs {
			if p.Addr().Is6() != v6 {
				continue
			}
			s.line(`announce %s $((i + %d))`, p.Addr(), n)
			break
		}
	}
	s.line("fi")
}

// retireScript is guest.Retire; endpoints of addresses that are needed stay: peers go on counting those that are not
// withdrawn. rtt is that of the slowest subflow that goes.
func retireScript(p guest.Retire, needed []netip.Addr, rtt time.Duration) (string, error) {
	s, err := newScript(p.MAC, "")
	if err != nil {
		return "", err
	}
	s.line("old=$d")
	leaving := slices.DeleteFunc(slices.Clone(p.Addrs), func(addr netip.Addr) bool { return slices.Contains(needed, addr) })
	for _, addr := range leaving {
		s.withdraw(addr)
	}
	if len(leaving) > 0 || len(needed) == 0 {
		s.line("sleep %.3f", closing(rtt).Seconds())
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
			s.line("[ $d = $old ] || [ -z \"$(tables %[1]s)\" ] || drop %[1]s $d", word(addr)) // a call before was to keep it
			s.unlead(addr)
		}
		if !p.Keep || !p.Stay {
			s.line("drop %s $old", word(addr))
		}
	}
	if !p.Stay {
		s.line("ip link set $old down")
	}
	return s.String(), nil
}

// closing is how long the NIC stays up after its subflows were withdrawn, whose slowest had that RTT:
// their last segments leave by the address that goes, and peers answer them (as lastAnswers in
// cmd/guest/address, but that waits until they have closed).
func closing(rtt time.Duration) time.Duration {
	return 200*time.Millisecond + min(rtt*5/2, time.Second)
}

// takeOver moves what must live on to the new NIC: the main route, and the addresses
// to keep, by the gateway of that NIC's own table unless another is named.
func (s *script) takeOver(p guest.Retire) error {
	hardware, err := net.ParseMAC(p.NewMAC)
	if err != nil || len(hardware) != 6 {
		return fmt.Errorf("retire: %q is not a MAC address", p.NewMAC)
	}
	s.line(`d=$(nic %s)
case "$(ip route show default) " in *" dev $d "*) ;; *) mainly;; esac`, hardware)
	if !p.Keep {
		return nil
	}
	if slices.ContainsFunc(p.Addrs, netip.Addr.Is6) {
		s.line("put ipv6/conf/$d/disable_ipv6 0")
	}
	for _, addr := range p.Addrs {
		f, gateway := family(addr), p.KeepGatewayV4
		if addr.Is6() {
			gateway = p.KeepGatewayV6
		}
		// The NIC's own table is that of an address which it was given, of either family.
		s.line(`own= via=
for c in $(ip -o addr show dev $d scope global | while read -r n e f c r; do echo $c; done); do
	for t in $(tables ${c%%%%/*}); do if owns $t; then own=$t; fi; done
done
[ -n "$own" ] || { echo "$d is not configured" >&2; exit 1; }`)
		if gateway.IsValid() {
			s.line("via=%s", word(gateway))
		} else {
			s.line("via=$(ip %s route show default table $own dev $d | { read -r x y v r; echo $v; })", f)
		}
		table := fmt.Sprintf("$((own + %d))", keepTables)
		if p.KeepTable != 0 {
			table = fmt.Sprint(p.KeepTable)
		}
		s.place(netip.PrefixFrom(addr, addr.BitLen()), table, "$via")
		s.line("go")
	}
	return nil
}
