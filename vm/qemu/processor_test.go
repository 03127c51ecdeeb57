package qemu_test

import (
	"path/filepath"
	"slices"
	"testing"

	"godwit/vm"
	"godwit/vm/qemu"
)

// TestFactsSayWhatTheProcessorCan: the features that QEMU takes from a model because it has
// not got them, or because it was told to, are not among those that the guest has; and a QEMU
// that waits for a guest tells the same as the one that runs it.
func TestFactsSayWhatTheProcessorCan(t *testing.T) {
	const avx2, avx512f = 1 << 5, 1 << 16 // of 7.0.EBX; TCG has the first only
	spec := firmware(t)
	facts := func(cpu string, incoming bool) vm.Facts {
		s := spec
		s.CPU, s.Incoming, s.Dir = cpu, incoming, filepath.Join(t.TempDir(), "vm")
		f, err := start(t, s).Facts(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if f.CPU != "Skylake-Server" || f.Features == nil {
			t.Fatalf("%s: model %s, features %v", cpu, f.CPU, f.Features)
		}
		return f
	}
	runs, waits := facts("Skylake-Server", false), facts("Skylake-Server", true)
	if bits := runs.Features.CPUID["7.0.EBX"]; bits&avx2 == 0 || bits&avx512f != 0 || !slices.Contains(runs.Features.Unavailable, "avx512f") {
		t.Errorf("7.0.EBX %#x, unavailable %v: want avx2, and no avx512f", bits, runs.Features.Unavailable)
	}
	for register, bits := range runs.Features.CPUID {
		if waits.Features.CPUID[register] != bits {
			t.Errorf("%s: %#x in the QEMU that runs, %#x in the one that waits", register, bits, waits.Features.CPUID[register])
		}
	}
	if !slices.Equal(runs.Features.Unavailable, waits.Features.Unavailable) {
		t.Errorf("unavailable: %v and %v", runs.Features.Unavailable, waits.Features.Unavailable)
	}
	if less := facts("Skylake-Server,-avx2", true); less.Features.CPUID["7.0.EBX"] != runs.Features.CPUID["7.0.EBX"]&^avx2 {
		t.Errorf("without avx2: 7.0.EBX %#x, with it %#x", less.Features.CPUID["7.0.EBX"], runs.Features.CPUID["7.0.EBX"])
	}
}

// TestFactsSayWhichProcessors: one that was plugged in is told by its place, as QEMU's stream names it.
func TestFactsSayWhichProcessors(t *testing.T) {
	for _, c := range []struct {
		words []string
		cpus  []int
		smp   int
	}{
		{[]string{"-smp", "3"}, []int{0, 1, 2}, 3},
		{[]string{"-smp", "2,maxcpus=4,sockets=4", "-device", "qemu64-x86_64-cpu,socket-id=3,core-id=0,thread-id=0"}, []int{0, 1, 3}, 4},
	} {
		p := theirs(t, append([]string{"-machine", "q35", "-accel", "tcg", "-m", "32"}, c.words...)...)
		f, err := p.Facts(t.Context())
		if err != nil || f.VCPUs != 3 || !slices.Equal(f.CPUs, c.cpus) || f.SMP() != c.smp {
			t.Errorf("%q: %d processors, %v, -smp %d, %v; want %v, %d", c.words, f.VCPUs, f.CPUs, f.SMP(), err, c.cpus, c.smp)
		}
	}
	if n := (vm.Facts{VCPUs: 2}).SMP(); n != 2 {
		t.Errorf("of an older agent's facts: -smp %d", n)
	}
}

// TestCPUAsItWas: a guest finds the processor that it had where it was, also one that an earlier release started.
func TestCPUAsItWas(t *testing.T) {
	bits := func(ebx uint32) *vm.Features { return &vm.Features{CPUID: map[string]uint32{"7.0.EBX": ebx}} }
	for name, c := range map[string]struct {
		facts vm.Facts
		want  string
	}{
		"emulated":                      {vm.Facts{Accel: "tcg", CPU: "max", Features: bits(1 << 5)}, "max,-erms,-fsrm"},
		"by an earlier release":         {vm.Facts{Accel: "tcg", CPU: "max", Features: bits(1<<5 | 1<<9)}, "max"},
		"by one that tells no features": {vm.Facts{Accel: "tcg", CPU: "max"}, "max"},
		"another model":                 {vm.Facts{Accel: "tcg", CPU: "Skylake-Server", Features: bits(1 << 5)}, "Skylake-Server"},
		"not emulated":                  {vm.Facts{Accel: "kvm", CPU: "max", Features: bits(1 << 5)}, "max"},
	} {
		if got := qemu.CPU(c.facts); got != c.want {
			t.Errorf("%s: -cpu %s, want %s", name, got, c.want)
		}
	}
}
