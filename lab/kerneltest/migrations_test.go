package kerneltest

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"godwit/internal/need"
	"godwit/lab/image"
)

// migrations are whole ones, by kinds of tunnel that this machine's kernel may lack: the guest runs a lab, with guests of its own.
var migrations = suite{
	pkg:      "lab",
	args:     []string{"-test.run=TestBy(EachTunnel|IPIP)/(gre|ipip)", "-test.timeout=1200s"},
	want:     []string{"TestByEachTunnel", "TestByEachTunnel/gre", "TestByIPIP", "TestByIPIP/ipip"},
	modules:  []string{"mptcp_diag", "tcp_diag", "udp_diag", "sch_fq", "nft_nat", "nft_masq"},
	programs: []string{"qemu-system-x86_64"},
}

// migrationsLimit bounds a life of half an hour of a processor: guests are emulated by what is itself emulated.
const migrationsLimit = 90 * time.Minute

// TestMigrationsOnTheGuestsKernel moves guests on that kernel, over links of its netem. It takes about as long as all other
// tests together.
func TestMigrationsOnTheGuestsKernel(t *testing.T) {
	if os.Getenv("GODWIT_KERNEL_MIGRATIONS") == "" {
		t.Skip("it takes half an hour; GODWIT_KERNEL_MIGRATIONS=1 asks for it")
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
