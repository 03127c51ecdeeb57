package lab

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"godwit/agent/config"
	"godwit/migration"
	"godwit/netstate/mptcp"
	"godwit/netstate/netns"
)

const qemuMPTCPWorld = `
name: qemu-mptcp
sites:
  - {name: montreal, guest_net: {v4: 10.1.1.0/24}, uplinks: [{name: fibre, rate: 160mbit, delay: 5ms}, {name: cable, rate: 100mbit, delay: 5ms}]}
  - {name: sanjose, guest_net: {v4: 10.2.1.0/24}, uplinks: [{name: fibre, rate: 160mbit, delay: 5ms}, {name: cable, rate: 100mbit, delay: 5ms}]}
  - {name: rome, guest_net: {v4: 10.3.1.0/24}, uplinks: [{name: fibre, rate: 260mbit, delay: 5ms}]}
clients:
  - {name: phone, at: internet}
guests:
  - {name: web, site: montreal, memory: 160MiB, run: ["dirty size=16MiB data=random"]}
`

// TestQEMUsOwnMPTCPTakesEveryPath: each uplink carries a part of the memory, inside tunnels and,
// where that was asked for, without, where all can read it; also where the destination has one only.
func TestQEMUsOwnMPTCPTakesEveryPath(t *testing.T) {
	p := newTrial(t, qemuMPTCPWorld, func(string, *config.Config) {})
	p.ticks("phone", "web")
	wire := p.taps("montreal")
	for _, req := range []migration.Request{
		{Guest: "web", To: "sanjose", Transfer: "qemu-mptcp", Downtime: 2 * time.Second},
		{Guest: "web", To: "montreal", Transfer: "qemu-mptcp", Downtime: 2 * time.Second, InsecureTransfer: true},
		{Guest: "web", To: "rome", Transfer: "qemu-mptcp", Downtime: 2 * time.Second},
	} {
		id := p.began(req)
		rep := p.endsOn(p.leads(), id, 90*time.Second)
		if rep.Outcome != migration.Completed {
			t.Fatalf("to %s: %s, %v", req.To, rep.Outcome, rep.Problem)
		}
		wire.heard(req.To, req.InsecureTransfer)
		var all int64
		for _, n := range rep.WireBytes {
			all += n
		}
		used := 0
		for _, n := range rep.WireBytes {
			if n > all/10 {
				used++
			}
		}
		if used != 2 {
			t.Errorf("to %s: memory took %v", req.To, rep.WireBytes)
		}
		for host := range p.w.agents {
			p.memoryLeft(host)
		}
		p.from = req.To
	}
	p.ticksWhole()
}

// memoryLeft looks for what a migration made for its memory, a moment after it has ended.
func (p *trial) memoryLeft(host string) {
	p.Helper()
	var left []string
	for until := time.Now().Add(3 * time.Second); time.Now().Before(until); time.Sleep(50 * time.Millisecond) {
		left = nil
		p.must(netns.Do(p.w.agents[host].host.Namespace, func() error {
			links, err := netlink.LinkList()
			for _, l := range links {
				if strings.HasPrefix(l.Attrs().Name, "gwm") {
					left = append(left, l.Attrs().Name)
				}
			}
			known, merr := mptcp.Endpoints()
			for _, e := range known {
				if e.Flags == mptcp.FlagSignal || e.Flags == mptcp.FlagSubflow|mptcp.FlagFullmesh { // others are the kernel's
					left = append(left, e.Addr.String())
				}
			}
			return errors.Join(err, merr)
		}))
		if left == nil {
			return
		}
	}
	p.Errorf("%s: tunnels for memory, and addresses for it, are left: %v", host, left)
}
