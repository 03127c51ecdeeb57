package lab

import (
	"testing"
	"time"

	"godwit/agent"
	"godwit/migration"
)

const qemuMPTCPWorld = `
name: qemu-mptcp
sites:
  - {name: montreal, guest_net: {v4: 10.1.1.0/24}, uplinks: [{name: fibre, rate: 100mbit, delay: 5ms}, {name: cable, rate: 60mbit, delay: 5ms}]}
  - {name: sanjose, guest_net: {v4: 10.2.1.0/24}, uplinks: [{name: fibre, rate: 100mbit, delay: 5ms}, {name: cable, rate: 60mbit, delay: 5ms}]}
  - {name: rome, guest_net: {v4: 10.3.1.0/24}, uplinks: [{name: fibre, rate: 160mbit, delay: 5ms}]}
clients:
  - {name: phone, at: internet}
guests:
  - {name: web, site: montreal, memory: 160MiB, run: ["dirty size=40MiB data=random"]}
`

// TestQEMUsOwnMPTCPTakesEveryPath: each uplink carries a part of the memory, inside tunnels and,
// where that was asked for, without; also where the destination has one only.
func TestQEMUsOwnMPTCPTakesEveryPath(t *testing.T) {
	p := newTrial(t, qemuMPTCPWorld, func(string, *agent.Config) {})
	p.ticks("phone", "web")
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
		p.from = req.To
	}
	if p.gap() >= time.Hour {
		t.Error("the connection was lost")
	}
}
