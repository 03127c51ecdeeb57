package lab

import (
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"godwit/migration"
)

// TestPostcopyOutlivesSourceQEMU kills the source's QEMU in post-copy: its agent has read all that is missing, and the
// guest ends whole at the destination.
func TestPostcopyOutlivesSourceQEMU(t *testing.T) {
	p := newTrial(t, postcopyWorld, waitsForSlows)
	p.ticks("phone", "web")
	id := p.followsSlowly("montreal", migration.Request{Guest: "web", To: "sanjose", Mode: "postcopy", Transfer: "lanes", Downtime: 200 * time.Millisecond})
	before := p.starves("sanjose", id, 1000)
	p.holdsPages("montreal", "sanjose", id)
	p.killsQEMU("montreal")
	p.must(p.leader().SetBandwidth(t.Context(), id, 0))
	rep := p.ends(id, 90*time.Second)
	t.Logf("%+v; when it was hurt %+v; notes %q", rep.PostCopy, before.PostCopy, rep.Notes)
	if rep.Outcome != migration.Completed {
		t.Fatalf("%s, %v, %+v", rep.Outcome, rep.Problem, rep.PostCopy)
	}
	p.ticksWhole()
}

// killsQEMU ends web's QEMU on a host.
func (p *trial) killsQEMU(host string) {
	p.Helper()
	pid, err := p.w.agents[host].qemuPID(p.Context(), "web")
	p.must(err)
	p.must(syscall.Kill(pid, syscall.SIGKILL))
}

// TestPostcopyLosesGuest ends the source's QEMU in post-copy, and an agent, so that what is missing is nowhere any
// more. Both agents say that the guest is lost, and by what; no QEMU of it is left, and its disks are.
func TestPostcopyLosesGuest(t *testing.T) {
	for _, hurt := range []string{"montreal", "sanjose"} {
		t.Run("and the agent of "+hurt, func(t *testing.T) {
			p := newTrial(t, strings.Replace(postcopyWorld, "160MiB,", "160MiB, disk: 16MiB,", 1), waitsForSlows)
			p.w.keepsDisks("web", "montreal", "sanjose")
			id := p.followsSlowly("montreal", migration.Request{Guest: "web", To: "sanjose", Mode: "postcopy", Transfer: "lanes", Downtime: 200 * time.Millisecond})
			p.starves("sanjose", id, 1000)
			p.holdsPages("montreal", "sanjose", id)
			p.killsQEMU("montreal")
			p.must(p.w.agents[hurt].kill())
			time.Sleep(time.Second)
			p.must(p.w.agents[hurt].start(t.Context()))
			for _, host := range []string{"montreal", "sanjose"} {
				rep := p.endsOn(host, id, 60*time.Second)
				t.Logf("%s: %v; notes %q", host, rep.Problem, rep.Notes)
				if rep.Outcome != migration.Failed || rep.Problem == nil {
					t.Fatalf("%s: %s, %v", host, rep.Outcome, rep.Problem)
				}
				p.said(host, rep.Problem, migration.CodeGuestGone, "guest web is lost", "QEMU on montreal", "pages", "on sanjose", "disks are kept on both hosts")
				if _, err := p.guest(host, "web"); err == nil {
					t.Errorf("%s has it under care", host)
				}
				if left := p.w.agents[host].qemus(); len(left) > 0 {
					t.Errorf("QEMUs are left on %s: %v", host, left)
				}
			}
			here, err := filepath.Glob(filepath.Join(p.w.agents["montreal"].config.State, "disks", "web-*.raw"))
			p.must(err)
			there, err := filepath.Glob(filepath.Join(p.w.agents["sanjose"].config.State, "disks", "web-*"+id+".raw"))
			p.must(err)
			if len(here) != 1 || len(there) != 1 {
				t.Errorf("disks: %q, %q", here, there)
			}
			left := p.leftOfIt()
			for until := time.Now().Add(5 * time.Second); len(left) > 0 && time.Now().Before(until); left = p.leftOfIt() {
				time.Sleep(50 * time.Millisecond) // a journal goes once the history has what was told
			}
			if len(left) > 0 {
				t.Errorf("left: %q", left)
			}
		})
	}
}

// leftOfIt is what is on the hosts of a guest that is there no more: files, network state and devices.
func (p *trial) leftOfIt() (left []string) {
	p.Helper()
	for host, have := range p.inventory() {
		for _, h := range have {
			if strings.HasPrefix(h, "file ") || strings.HasPrefix(h, "network state") || strings.HasPrefix(h, "device gw") {
				left = append(left, host+": "+h)
			}
		}
	}
	return left
}
