package kerneltest

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"godwit/internal/need"
	"godwit/lab/image"
	"godwit/lab/image/archive"
)

// migrations are whole ones, by kinds of tunnel and in VLANs, which this machine's kernel may lack, and with hours
// between them, over which the guest's clock jumps: the guest runs a lab, with guests of its own.
var migrations = map[string]suite{
	"tunnels":    ofLab("TestBy(EachTunnel|IPIP)/(gre|ipip)", "TestByEachTunnel", "TestByEachTunnel/gre", "TestByIPIP", "TestByIPIP/ipip"),
	"VLANs":      ofLab("TestInVLAN", "TestInVLAN", "TestInVLAN/from_montreal", "TestInVLAN/from_sanjose"),
	"idle hours": forHours(ofLab("TestIdleHours", "TestIdleHours")),
}

// ofLab is some tests of package lab.
func ofLab(run string, want ...string) suite {
	return suite{
		pkg:      "lab",
		args:     []string{"-test.run=" + run, "-test.timeout=1200s"},
		want:     want,
		modules:  []string{"mptcp_diag", "tcp_diag", "udp_diag", "sch_fq", "nft_nat", "nft_masq"},
		programs: []string{"qemu-system-x86_64"},
	}
}

// forHours is a suite of a lab with clients behind NAT, in which hours go by.
func forHours(s suite) suite {
	s.args = append(s.args, "-test.timeout=24h", "-idle-hours")
	s.modules = append(s.modules, "nft_chain_nat")
	s.programs = append(s.programs, "ss")
	return s
}

// migrationsLimit bounds a life of half an hour of a processor: guests are emulated by what is itself emulated.
const migrationsLimit = 90 * time.Minute

// TestMigrationsOnTheGuestsKernel moves guests on that kernel, over links of its netem. It takes about as long as all other
// tests together.
func TestMigrationsOnTheGuestsKernel(t *testing.T) {
	if os.Getenv("GODWIT_KERNEL_MIGRATIONS") == "" {
		t.Skip("it takes an hour; GODWIT_KERNEL_MIGRATIONS=1 asks for it")
	}
	need.QEMU(t)
	kernel := kernelOf(t)
	for name, s := range migrations {
		t.Run(name, func(t *testing.T) {
			judge(t, boot(t, "qemu-system-x86_64", kernel, write(t, labOf(t, kernel, s)), "3072", migrationsLimit), s)
		})
	}
}

// labOf are the entries of a guest that runs a lab.
func labOf(t *testing.T, kernel string, s suite) []archive.Entry {
	t.Helper()
	entries := entriesOf(t, kernel, s)
	for _, pattern := range firmware {
		files, _ := filepath.Glob(pattern)
		for _, file := range files {
			entries = append(entries, executable(t, file, file[1:]))
		}
	}
	folder := filepath.Dir(kernel)
	for _, name := range []string{image.KernelFile, image.InitrdFile} {
		entries = append(entries, executable(t, filepath.Join(folder, name), "guest/"+name))
	}
	return entries
}

// firmware is what QEMU reads as it starts the lab's guests.
var firmware = []string{"/usr/share/seabios/bios-256k.bin", "/usr/share/qemu/kvmvapic.bin", "/usr/share/qemu/linuxboot*.bin", "/usr/lib/ipxe/qemu/*virtio*"}
