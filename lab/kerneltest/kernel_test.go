// Package kerneltest runs tests of other packages on the kernel that the lab's guests boot,
// in a guest that is made for it. That kernel has what this machine's may lack: netem, GRE,
// IPIP, WireGuard, VLANs.
package kerneltest

import (
	"cmp"
	"context"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"godwit/internal/need"
	"godwit/lab/image"
)

var suites = []suite{
	{
		pkg:  "netstate/tunnel",
		args: []string{"-test.skip=TestJumbo/.*_over_(1500|1280)|TestEnds/vxlan|TestLinkRequests|TestOverhead|TestBadConfig|TestCrossed|TestWhoBeginsAgain"},
		want: []string{
			"TestFullSize/wireguard_over_IPv4/kernel", "TestFullSize/wireguard_over_IPv6/kernel",
			"TestFullSize/vxlan_over_IPv4/kernel", "TestFullSize/vxlan_over_IPv6/kernel",
			"TestFullSize/gre_over_IPv4/kernel", "TestFullSize/gre_over_IPv6/kernel",
			"TestFullSize/ipip_over_IPv4/kernel", "TestFullSize/ipip_over_IPv6/kernel",
			"TestSupported", "TestLeavesByLocal", "TestManyLinkChanges/wireguard", "TestUpAgainWithoutDevice", "TestUpCancelled", "TestEnds/wireguard_by_its_device_deleted",
			"TestForwardsFull", "TestVerifyComesBehind", "TestDroppedFragments", "TestOutlivesAndFound", "TestSilent",
			"TestJumbo/10.9.1.2:51820_over_1400", "TestJumbo/[fd09:1::2]:51821_over_1400",
		},
	},
	{
		pkg:  "lab/wan",
		args: []string{"-test.run=TestLink(Delay|CutAndRestore|Loses|RefusesNonsense)/netem|TestLinkRate/netem/100|TestProbeAgrees"},
		want: []string{
			"TestProbeAgrees", "TestLinkDelay/netem", "TestLinkRate/netem/100_Mbit", "TestLinkLoses/netem",
			"TestLinkCutAndRestore/netem", "TestLinkRefusesNonsense/netem",
		},
	},
	{
		pkg:  "lab/topo",
		args: []string{"-test.run=TestGuestsInVLAN"},
		want: []string{"TestGuestsInVLAN"},
	},
	{
		pkg:  "netstate",
		args: []string{"-test.run=TestVLAN|TestEachCure/^-4"},
		want: []string{"TestVLAN/port_eth0.20", "TestVLAN/bridge_that_filters", "TestEachCure/-4_MAC_redirect_at_home"},
	},
	{
		pkg:     "netstate/conntrack",
		want:    []string{"TestOneAddress"},
		modules: []string{"nf_conntrack_netlink"},
	},
	{
		pkg:     "netstate/mptcp",
		args:    []string{"-test.run=TestRoomOf"},
		want:    []string{"TestRoomOfJoins/IPv4", "TestRoomOfJoins/IPv6", "TestRoomOfOthers"},
		modules: sockets,
	},
	{
		pkg:     "cmd/guest/follow",
		args:    []string{"-test.run=TestClosedListenerIsReached|TestServersThatTakeNoMore|TestDialled"},
		want:    []string{"TestClosedListenerIsReached", "TestServersThatTakeNoMore/that_closed_its_listener", "TestDialled"},
		modules: sockets,
	},
	{
		pkg:     "cmd/guest/address",
		args:    []string{"-test.run=TestReadyIsTaken$|TestToldOfBoth|TestWithdrawnOnce"},
		want:    []string{"TestReadyIsTaken", "TestToldOfBoth", "TestWithdrawnOnce"},
		modules: sockets,
	},
}

// sockets are modules that list them.
var sockets = []string{"mptcp_diag", "tcp_diag", "udp_diag"}

// guestLimit bounds the guest's life, which is 4 minutes of a processor, on a machine that is
// busy with other tests that go before it.
const guestLimit = 10 * time.Minute

// TestOnTheGuestsKernel boots one guest, which runs the suites, and holds what they say
// against what has to pass.
func TestOnTheGuestsKernel(t *testing.T) {
	need.QEMU(t)
	need.Program(t, "chrt")
	kernel := kernelOf(t)
	said := boot(t, "qemu-system-x86_64", kernel, write(t, entriesOf(t, kernel, suites...)), "768", guestLimit)
	for _, s := range suites {
		t.Run(s.pkg, func(t *testing.T) { judge(t, said, s) })
	}
}

// judge holds what the guest said of a suite against what has to pass.
func judge(t *testing.T, said string, s suite) {
	t.Helper()
	o, ok := outcomes(said)[s.folder()]
	if !ok {
		t.Fatalf("the guest said nothing of it:\n%s", said)
	}
	for _, name := range s.want {
		t.Run(name, func(t *testing.T) {
			if o.tests[name] != "PASS" {
				t.Errorf("it %s there", cmp.Or(map[string]string{"FAIL": "fails", "SKIP": "is skipped"}[o.tests[name]], "is not run"))
			}
		})
	}
	for name, result := range o.tests {
		if result != "PASS" && !slices.Contains(s.want, name) {
			t.Errorf("%s: %s", name, result)
		}
	}
	if o.exit != "0" {
		t.Errorf("exit status %q", o.exit)
	}
	if t.Failed() {
		t.Logf("it said:\n%s", o.text)
	}
}

// An outcome is what a suite said in the guest.
type outcome struct {
	tests map[string]string // PASS, FAIL or SKIP, by name
	exit  string            // status; "" if it did not end
	text  string
}

var result = regexp.MustCompile(`^ *--- (PASS|FAIL|SKIP): (\S+) `)

// outcomes takes apart what testdata/init writes.
func outcomes(said string) map[string]*outcome {
	all, now := map[string]*outcome{}, &outcome{}
	for line := range strings.Lines(said) {
		if name, ok := strings.CutPrefix(line, "=== suite "); ok {
			now = &outcome{tests: map[string]string{}}
			all[strings.TrimSpace(name)] = now
		} else if status, ok := strings.CutPrefix(line, "=== exit "); ok {
			now.exit = strings.TrimSpace(status)
		} else if m := result.FindStringSubmatch(line); m != nil && now.tests != nil {
			now.tests[m[2]] = m[1]
		}
		now.text += line
	}
	return all
}

func TestOutcomes(t *testing.T) {
	got := outcomes("=== suite a-b\n=== RUN   TestX\n--- FAIL: TestX (0.1s)\n    --- SKIP: TestX/y (0.00s)\n=== exit 1\n=== suite c\n--- PASS: TestZ (1s)\n")
	a, c := got["a-b"], got["c"]
	if len(got) != 2 || a.exit != "1" || len(a.tests) != 2 || a.tests["TestX"] != "FAIL" || a.tests["TestX/y"] != "SKIP" {
		t.Errorf("of two suites: %+v", a)
	}
	if c.exit != "" || c.tests["TestZ"] != "PASS" || !strings.Contains(c.text, "TestZ") {
		t.Errorf("of one that did not end: %+v", c)
	}
}

// boot runs a guest until it ends, and returns what its suites said. Its clock counts its
// instructions (-icount) and jumps over idle time: what it measures does not depend on how
// busy this machine is, and waiting costs nothing. memory is in MiB. It gives way to others, so that tests which want the
// machine to themselves (need.Lab) need not wait for it.
func boot(t *testing.T, program, kernel, rootfs, memory string, limit time.Duration) string {
	t.Helper()
	dir := t.TempDir()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	qemu := exec.CommandContext(ctx, "nice", "-n", "5", program, "-nodefaults", "-no-user-config", "-display", "none", "-no-reboot",
		"-M", "q35", "-accel", "tcg", "-icount", "shift=0,sleep=off", "-cpu", "max", "-m", memory, "-smp", "1",
		"-kernel", kernel, "-initrd", rootfs, "-append", image.Cmdline,
		"-serial", "file:"+dir+"/console", "-device", "virtio-serial-pci",
		"-chardev", "file,id=said,path="+dir+"/said", "-device", "virtserialport,chardev=said")
	qemu.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	begin := time.Now()
	out, err := qemu.CombinedOutput()
	said, _ := os.ReadFile(dir + "/said")
	console, _ := os.ReadFile(dir + "/console")
	t.Logf("the guest lived for %v", time.Since(begin).Round(time.Second))
	if err != nil {
		t.Errorf("qemu: %v\n%s", err, out)
	}
	if len(said) == 0 || err != nil {
		t.Logf("console:\n%s", console)
	}
	return string(said)
}
