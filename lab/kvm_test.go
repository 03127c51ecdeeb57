package lab

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"godwit/agent/config"
	"godwit/migration"
	"godwit/netstate/netns"
	"godwit/vm/qemu"
)

// kvmWorld has a guest that writes random bytes, slower than its link carries.
const kvmWorld = `
name: kvm
sites:
  - {name: montreal, guest_net: {v4: 10.1.1.0/24}, uplinks: [{name: public, rate: 100mbit, delay: 5ms}]}
  - {name: sanjose, guest_net: {v4: 10.2.1.0/24}, uplinks: [{name: public, rate: 100mbit, delay: 5ms}]}
clients:
  - {name: phone, at: sanjose}
guests:
  - {name: web, site: montreal, memory: 112MiB, run: ["dirty size=4MiB rate=1MiB/s"]}
`

// TestByKVM moves a guest to and fro under KVM, where there is that: what QEMU logs of dirty pages, and how pages that are
// missing are waited for, are KVM's then. lab/kerneltest has a processor with it for each machine.
func TestByKVM(t *testing.T) {
	if qemu.ProbeAccel() != "kvm" {
		t.Skip("KVM does not work here")
	}
	p := newTrial(t, kvmWorld, func(string, *config.Config) {})
	p.ticks("phone", "web")
	from, to := "montreal", "sanjose"
	for _, c := range []struct{ transfer, mode string }{
		{"lanes", "precopy"}, {"lanes", "postcopy"}, {"qemu-tcp", "precopy"},
	} {
		t.Run(c.transfer+" "+c.mode, func(t *testing.T) {
			defer func(whole *testing.T) { p.T = whole }(p.T)
			p.T = t
			p.from = from
			rep := p.ends(p.began(migration.Request{Guest: "web", To: to, Mode: c.mode, Transfer: c.transfer}), 90*time.Second)
			if rep.Outcome != migration.Completed || rep.Problem != nil || (rep.PostCopy != nil) != (c.mode == "postcopy") {
				t.Fatalf("%s, %v, post-copy %+v", rep.Outcome, rep.Problem, rep.PostCopy)
			}
			t.Logf("downtime %v, notes %q", time.Duration(rep.Resumed-rep.Paused), rep.Notes)
			p.accelerated(to, "kvm")
			if gap := p.gap(); gap > 5*time.Second {
				t.Errorf("the connection waited for %v", gap)
			}
			from, to = to, from
		})
	}
	p.ticksWhole()
}

// accelerated checks that a host's one QEMU was started with an accelerator.
func (p *trial) accelerated(host, by string) {
	p.Helper()
	var found []string
	for _, pid := range netns.Processes(p.w.agents[host].host.Namespace) {
		args, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		if line := strings.ReplaceAll(string(args), "\x00", " "); strings.HasPrefix(line, "qemu-system") {
			found = append(found, line)
		}
	}
	if len(found) != 1 || !strings.Contains(found[0], " -accel "+by+" ") {
		p.Errorf("QEMUs of %s: %q: want one by %s", host, found, by)
	}
}
