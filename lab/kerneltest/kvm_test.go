package kerneltest

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"godwit/internal/need"
)

// byKVM are migrations under KVM: the guest's processor has AMD's virtualisation, which QEMU emulates.
var byKVM = func() suite {
	s := ofLab("TestByKVM", "TestByKVM", "TestByKVM/lanes_precopy", "TestByKVM/lanes_postcopy", "TestByKVM/qemu-tcp_precopy")
	s.modules = append(s.modules, "kvm_amd")
	return s
}()

// TestMigrationsByKVM moves guests under KVM, on an emulated processor.
func TestMigrationsByKVM(t *testing.T) {
	if os.Getenv("GODWIT_KERNEL_MIGRATIONS") == "" {
		t.Skip("it takes long; GODWIT_KERNEL_MIGRATIONS=1 asks for it")
	}
	need.QEMU(t)
	kernel := kernelOf(t)
	judge(t, boot(t, mended(t), kernel, write(t, labOf(t, kernel, byKVM)), "3072", migrationsLimit), byKVM)
}

// injects is what QEMU's helper_vmrun does before it delivers an interrupt that a hypervisor injects: it stores the
// vector as the exception that is to be raised, 0 as exception_is_int and -1 as exception_next_eip, and has hardware as
// the cause (edx) soon after. A dot is any byte.
const injects = "\x89...\xff\xff" + "\xc7...\x00\x00\x00\x00\x00\x00" + "\x48\xc7...\x00\x00\xff\xff\xff\xff" + "............." + "\xba\x01\x00\x00\x00"

// mended is a copy of the installed QEMU that does not do the first of these. The interrupt has been delivered by the
// time that the store is looked at, and is delivered once more, whatever the guest masks: where the emulation is left
// before the next exit to the hypervisor, as it is at each alarm of the counted clock. A guest that holds a lock then
// spins on it for good.
func mended(t *testing.T) string {
	t.Helper()
	program, err := os.ReadFile(which(t, "qemu-system-x86_64"))
	if err != nil {
		t.Fatal(err)
	}
	places := find(program, injects)
	if len(places) != 1 {
		t.Fatalf("in this QEMU the place to mend is found %d times, not once", len(places))
	}
	copy(program[places[0]:], "\x66\x0f\x1f\x44\x00\x00") // a nop of as many bytes
	out := filepath.Join(t.TempDir(), "qemu-system-x86_64")
	if err := os.WriteFile(out, program, 0o700); err != nil {
		t.Fatal(err)
	}
	return out
}

// find returns where a pattern is in data. A dot of it is any byte.
func find(data []byte, pattern string) (at []int) {
	for i := range len(data) - len(pattern) + 1 {
		n := 0
		for n < len(pattern) && (pattern[n] == '.' || data[i+n] == pattern[n]) {
			n++
		}
		if n == len(pattern) {
			at = append(at, i)
		}
	}
	return at
}

func TestFind(t *testing.T) {
	if got := find([]byte("abcabdxab"), "ab."); !slices.Equal(got, []int{0, 3}) {
		t.Errorf("found at %v", got)
	}
}
