package kerneltest

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"godwit/internal/need"
	"godwit/lab/image"
)

// migrations are whole ones: the guest runs a lab, with guests of its own.
var migrations = suite{
	pkg:      "lab",
	args:     []string{"-test.run=TestByEachTunnel", "-test.timeout=1200s"},
	want:     []string{"TestByEachTunnel", "TestByEachTunnel/wireguard", "TestByEachTunnel/vxlan", "TestByEachTunnel/gre", "TestByEachTunnel/ipip"},
	modules:  []string{"mptcp_diag", "tcp_diag", "udp_diag", "sch_fq", "nft_nat", "nft_masq"},
	programs: []string{"qemu-system-x86_64"},
}

// migrationsLimit bounds a life of some 20 minutes of a processor: guests are emulated by what is itself emulated.
const migrationsLimit = 90 * time.Minute

// TestMigrationsOnTheGuestsKernel moves guests by each kind of tunnel of that kernel, over links of its netem. It takes
// longer than all other tests together, and is asked for by GODWIT_KERNEL_MIGRATIONS=1.
func TestMigrationsOnTheGuestsKernel(t *testing.T) {
	if os.Getenv("GODWIT_KERNEL_MIGRATIONS") == "" {
		t.Skip("set GODWIT_KERNEL_MIGRATIONS=1 to move guests on the kernel of the lab's guests, in half an hour")
	}
	need.QEMU(t)
	kernel := kernelOf(t)
	entries := entriesOf(t, kernel, migrations)
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
	judge(t, boot(t, kernel, write(t, entries), "3072", migrationsLimit), migrations)
}

// firmware is what QEMU reads as it starts the lab's guests.
var firmware = []string{"/usr/share/seabios/bios-256k.bin", "/usr/share/qemu/kvmvapic.bin", "/usr/share/qemu/linuxboot*.bin", "/usr/lib/ipxe/qemu/*virtio*"}
