package capable

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"godwit/internal/lists"
	"godwit/internal/oneline"
	"godwit/migration"
	"godwit/vm"
)

// A guest finds out at its start what its processor can do, and counts on it from then on.
// QEMU's stream does not say what that was: a guest that is loaded into a processor with less
// fails at the first instruction that is not there. So it is compared here, in two steps: the
// hosts' processors in check, where the guest's is its host's own, and what QEMU makes of the
// guest's in prepare, once the destination's waits.

// ownProcessor says whether the guest has its host's own processor, with all that it can do.
// A model that is not told is taken for that: it is the default of guests that agents start.
func ownProcessor(f vm.Facts) bool {
	return f.Accel == "kvm" && (f.CPU == "host" || f.CPU == "max" || f.CPU == "")
}

// lacksFlags says what a guest with its host's own processor would miss here.
func (h Host) lacksFlags(guest Guest) error {
	missing := lists.Without(strings.Fields(guest.Flags), strings.Fields(h.Flags))
	if guest.Facts.Features != nil { // what else the guest has is compared in prepare, bit by bit
		missing = slices.DeleteFunc(missing, func(flag string) bool { return !ofProcessor.MatchString(flag) })
	}
	if !ownProcessor(guest.Facts) || len(missing) == 0 {
		return nil // an older source tells its flags whatever the guest's processor is
	}
	return Refuses(h.Name, guest.Name, migration.CodeHypervisor, "its CPU lacks %s, and the guest has its host's own (-cpu host); %s", listed(missing), otherCPU(guest))
}

// ofProcessor are flags of Linux's list that a processor alone decides of, and a guest has where its host has them; by
// vmx and svm its maker is known, and what Intel's do for guests of guests is told nowhere else. Others are the
// kernel's own words, hang on how it was booted (pti, split_lock_detect) or on the firmware (ida, sgx, epb), or are in
// no guest: hosts with one and the same processor differ in these as soon as their kernels do.
var ofProcessor = regexp.MustCompile(`^(vmx|svm|s?sse[0-9a-z_]*|v?aes|avx[0-9a-z_]*|amx_[a-z0-9]+|f16c|fma4?|abm|bmi[12]|adx|movbe|popcnt|` +
	`v?pclmulqdq|gfni|sha_ni|sha512|sm[34]|xop|tbm|hle|rtm|mpx|pku|pcid|invpcid|rdrand|rdseed|rdpid|rdtscp|fsgsbase|erms|fsrm|` +
	`ept|ept_ad|vpid|tpr_shadow|flexpriority|clflushopt|clwb|clzero|cldemote|movdiri|movdir64b|serial[a-z]+|xsave[a-z]*|smap|smep|pdpe1gb|cx16|nx|lm|3dnow[a-z]*)$`)

// LacksProcessor says why the offered guest cannot be loaded into a QEMU of this host that waits
// with the processor of here; nil if it can. What an older source does not tell is not compared.
func LacksProcessor(host string, guest Guest, here vm.Facts) error {
	there := guest.Facts
	refuse := func(format string, a ...any) error {
		return Refuses(host, guest.Name, migration.CodeHypervisor, format, a...)
	}
	if there.CPU != "" && here.CPU != there.CPU {
		return refuse("its start command makes a CPU of model %s, the guest has %s; write -cpu %s in it, with the options that the guest's QEMU has", here.CPU, there.CPU, there.CPU)
	}
	if err := lacksPlaces(there, here, refuse); err != nil {
		return err
	}
	if there.Features == nil || here.Features == nil {
		return nil
	}
	if missing := lists.Without(here.Features.Unavailable, there.Features.Unavailable); len(missing) > 0 {
		return refuse("its QEMU cannot give %s, which the guest has by its CPU model %s; %s", listed(missing), here.CPU, otherCPU(guest))
	}
	if lost := lostBits(there.Features.CPUID, here.Features.CPUID); len(lost) > 0 {
		advice := otherCPU(guest)
		if guest.Started {
			advice = "write the -cpu options of the guest's QEMU in its start command, or choose another host"
		}
		return refuse("its CPU %s has not all that the guest's %s has (CPUID %s); %s", here.CPU, there.CPU, listed(lost), advice)
	}
	return nil
}

// lacksPlaces says by refuse what differs in the number of processors. More are taken where both tell that as many may
// be plugged in: only then is ACPI's state of them alike.
func lacksPlaces(there, here vm.Facts, refuse func(string, ...any) error) error {
	told := there.MaxCPUs > 0 && here.MaxCPUs > 0
	lost, which := lists.Without(there.CPUs, here.CPUs), ""
	if len(lost) > 0 {
		which = fmt.Sprintf(", of which those of cpu-index %s are not there", listed(places(lost)))
	}
	switch {
	case here.VCPUs < there.VCPUs, len(lost) > 0, !told && there.VCPUs > 0 && here.VCPUs > there.VCPUs:
		return refuse("its start command makes %d processors, the guest has %d%s; write -smp %d in it, with the options that the guest's QEMU has, or the -device of each that was plugged in",
			here.VCPUs, there.VCPUs, which, there.SMP())
	case told && here.MaxCPUs != there.MaxCPUs:
		return refuse("its start command makes a machine for at most %d processors, the guest's is for %d; write maxcpus=%d behind -smp in it, as the guest's QEMU has",
			here.MaxCPUs, there.MaxCPUs, there.MaxCPUs)
	}
	return nil
}

// places are a guest's processors, as words.
func places(cpus []int) (words []string) {
	for _, n := range cpus {
		words = append(words, fmt.Sprint(n))
	}
	return words
}

// otherCPU is what can be done about a processor that is not enough.
func otherCPU(guest Guest) string {
	if !guest.Started {
		return "choose another host" // its agent gave it the host's own
	}
	return "choose another host, or start the guest with a CPU model that both have"
}

// notLost are bits of registers that say nothing of what the processor can do. Those of
// 80000001.EDX repeat 1.EDX where the guest sees AMD's processor (CPUID_EXT2_AMD_ALIASES in QEMU's
// target/i386/cpu.h): with KVM a named model has its host's vendor, and a host of another does not
// repeat them. HTT and CmpLegacy follow from the number of threads, and the vendor.
var notLost = map[string]uint32{
	"80000001.EDX": 0x0183f3ff,
	"1.EDX":        1 << 28,
	"80000001.ECX": 1 << 1,
}

// lostBits are those of want that have lacks, such as "7.0.EBX bit 5".
func lostBits(want, have map[string]uint32) []string {
	var lost []string
	for _, register := range slices.Sorted(maps.Keys(want)) {
		bits := want[register] &^ have[register] &^ notLost[register]
		for i := range 32 {
			if bits&(1<<i) != 0 {
				lost = append(lost, fmt.Sprintf("%s bit %d", register, i))
			}
		}
	}
	return lost
}

// mostListed bounds what one line lists.
const mostListed = 12

// listed are the first words of a list, perhaps another host's, and how many there are more.
func listed(words []string) string {
	if more := len(words) - mostListed; more > 0 {
		return fmt.Sprintf("%s and %d more", oneline.Of(strings.Join(words[:mostListed], ", ")), more)
	}
	return oneline.Of(strings.Join(words, ", "))
}

// Bounds of what another host tells of a guest's processors. QEMU 10 has 40 registers and 350 features, and makes at
// most 4096 of them.
const (
	mostRegisters = 200
	mostFeatures  = 2000
	mostCPUs      = 1 << 16
)

var (
	modelForm    = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`)
	registerForm = regexp.MustCompile(`^[0-9a-f]{1,8}(\.[0-9a-f]{1,8})?\.E[ABCD]X$`)
)

// CheckMachine says what of another host's words cannot be a machine, or a processor. Both are
// arguments of QEMU's here, where it would take options too, such as a file of this host as firmware.
func CheckMachine(f vm.Facts) error {
	if f.Machine != "" && !modelForm.MatchString(f.Machine) {
		return fmt.Errorf("machine %.64q is none", f.Machine)
	}
	if f.CPU != "" && !modelForm.MatchString(f.CPU) {
		return fmt.Errorf("CPU model %.64q is none", f.CPU)
	}
	if f.MaxCPUs < 0 || f.MaxCPUs > mostCPUs {
		return fmt.Errorf("at most %d processors, which is none of 0 to %d", f.MaxCPUs, mostCPUs)
	}
	if len(f.CPUs) > mostCPUs || slices.ContainsFunc(f.CPUs, func(n int) bool { return n < 0 || n >= mostCPUs }) {
		return fmt.Errorf("%d processors, from %d to %d; at most %d, from 0 on", len(f.CPUs), slices.Min(f.CPUs), slices.Max(f.CPUs), mostCPUs)
	}
	if f.Features == nil {
		return nil
	}
	if r, u := len(f.Features.CPUID), len(f.Features.Unavailable); r > mostRegisters || u > mostFeatures {
		return fmt.Errorf("%d registers and %d features of a CPU; at most %d and %d", r, u, mostRegisters, mostFeatures)
	}
	for register := range f.Features.CPUID {
		if !registerForm.MatchString(register) {
			return fmt.Errorf("CPUID register %.64q is none", register)
		}
	}
	return nil
}
