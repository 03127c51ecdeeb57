package qga

import (
	"os/exec"
	"strings"
	"testing"

	"godwit/internal/need"
)

// TestNIC: what lies over a NIC and has its MAC is not taken for it, by every shell; nor is a part of that, where it is
// to stand alone. The lines are ip's (iproute2 6.1).
func TestNIC(t *testing.T) {
	const ether = `\    link/ether 52:54:00:00:00:0a brd ff:ff:ff:ff:ff:ff promiscuity 0  allmulti 0 minmtu 68 maxmtu 65535 `
	const lines = `2: br0: <UP> mtu 1500 qdisc noop` + ether + `\    bridge forward_delay 1500 hello_time 200
3: eth0.5@eth0: <UP> mtu 1500 qdisc noop` + ether + `\    vlan protocol 802.1Q id 5 <REORDER_HDR> addrgenmode eui64
4: bond0: <UP> mtu 1500` + ether + `\    bond mode active-backup
5: team0: <UP> mtu 1500` + ether + `\    team addrgenmode eui64
6: ovs0: <UP> mtu 1500` + ether + `\    openvswitch addrgenmode eui64
`
	for _, shell := range [][]string{{"sh"}, {"bash"}, {"bash", "--posix"}, {"busybox", "sh"}} {
		need.Program(t, shell[0])
		for _, c := range []struct{ nic, alone, want string }{
			{`9: eth0: <UP> mtu 1500` + ether + `addrgenmode eui64`, "alone", "eth0"},
			{`9: nic0@far0: <UP> mtu 1500` + ether + `\    veth addrgenmode eui64`, "alone", "nic0"},
			{`9: eth0: <UP> mtu 1500 master br0` + ether + `\    bridge_slave state disabled priority 32`, "", "eth0"},
			{`9: eth0: <UP> mtu 1500 master br0` + ether + `\    bridge_slave state disabled priority 32`, "alone", "eth0 is a part of another device"},
			{`9: eth0: <UP> mtu 1500 master ovs-system` + ether + `\    openvswitch_slave addrgenmode none`, "alone", "eth0 is a part of another device"},
			{`9: eth0: <UP> mtu 1500 master red` + ether + `\    vrf_slave table 10`, "alone", "eth0"},
			{`9: eth1: <UP> mtu 1500\    link/ether 52:54:00:00:00:0b brd ff:ff:ff:ff:ff:ff`, "", "no NIC has the MAC 52:54:00:00:00:0a"},
		} {
			s := &script{}
			s.functions()
			s.line(`ip() { printf '%%s\n' "$links"; }; d=$(nic 52:54:00:00:00:0a %s); echo $d`, c.alone)
			cmd := exec.Command(shell[0], append(shell[1:], "-c", s.String())...)
			cmd.Env = append(cmd.Environ(), "links="+lines+c.nic)
			out, err := cmd.CombinedOutput()
			if got := strings.TrimSpace(string(out)); !strings.HasPrefix(got, c.want) || (err == nil) != !strings.Contains(c.want, " ") {
				t.Errorf("%s: %q: %q (%v), want %q", shell, c.nic, got, err, c.want)
			}
		}
	}
}

// TestRank: the metric of the next default route of NICs, by every shell that /bin/sh may be. Such a route
// takes no other device's place.
func TestRank(t *testing.T) {
	for _, shell := range [][]string{{"sh"}, {"bash"}, {"bash", "--posix"}, {"busybox", "sh"}} {
		need.Program(t, shell[0])
		for routes, want := range map[string]string{
			"":                              "",
			"default via 10.1.1.1 dev eth0": "metric 0",
			"default dev vpn0 metric 50\ndefault via 10.1.1.1 dev eth0 metric 100":                    "metric 100",
			"default via 10.8.0.1 dev vpn0":                                                           "metric 1",
			"default dev vpn0 metric 50\ndefault dev vpn1 metric 7":                                   "metric 51",
			"default dev vpn0 metric 1024\ndefault via fe80::1 dev eth0 metric 1024 pref":             "metric 1025",
			"default via fe80::1 dev eth1 metric 300\ndefault via fe80::1 dev eth0 metric 200 onlink": "metric 200",
		} {
			s := &script{}
			s.functions()
			s.line(`ip() { echo "$routes"; }; isnic() { case $1 in eth*) ;; *) false;; esac; }; rank -4`)
			cmd := exec.Command(shell[0], append(shell[1:], "-c", s.String())...)
			cmd.Env = append(cmd.Environ(), "routes="+routes)
			out, err := cmd.CombinedOutput()
			if got := strings.TrimSpace(string(out)); err != nil || got != want {
				t.Errorf("%s: %q: %q (%v), want %q", shell, routes, got, err, want)
			}
		}
	}
}
