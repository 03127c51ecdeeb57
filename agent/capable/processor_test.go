package capable

import (
	"fmt"
	"strings"
	"testing"

	"godwit/agent/agenttest"
	"godwit/migration"
	"godwit/vm"
)

func TestLacksProcessor(t *testing.T) {
	const avx2, avx512f = 1 << 5, 1 << 16 // of 7.0.EBX
	processor := func(model string, bits uint32, unavailable ...string) vm.Facts {
		return vm.Facts{Accel: "kvm", CPU: model, Features: &vm.Features{CPUID: map[string]uint32{"1.EDX": 0x3f, "7.0.EBX": bits}, Unavailable: unavailable}}
	}
	register := func(name string, bits uint32) vm.Facts {
		return vm.Facts{CPU: "qemu64", Features: &vm.Features{CPUID: map[string]uint32{name: bits}}}
	}
	several := func(n int) vm.Facts { return vm.Facts{CPU: "max", VCPUs: n} }
	at := func(places ...int) vm.Facts { return vm.Facts{CPU: "max", VCPUs: len(places), CPUs: places} }
	of := func(most int, f vm.Facts) vm.Facts { f.MaxCPUs = most; return f }
	const model = "Skylake-Server"
	const own, adopted = false, true // whether a person started it
	for _, c := range []struct {
		name        string
		started     bool
		there, here vm.Facts
		words       []string
	}{
		{"the same", own, processor("max", avx2), processor("max", avx2), nil},
		{"a model that neither host has whole", adopted, processor(model, avx2, "avx512f", "hle"), processor(model, avx2, "hle", "avx512f"), nil},
		{"a better host", adopted, processor(model, avx2, "avx512f"), processor(model, avx2|avx512f), nil},
		{"a lesser host", adopted, processor(model, avx2|avx512f, "hle"), processor(model, avx2, "hle", "avx512f"),
			[]string{"host rome refuses guest web: its QEMU cannot give avx512f, which", "by its CPU model Skylake-Server", "CPU model that both have"}},
		{"what is in no CPUID", adopted, processor(model, avx2), processor(model, avx2, "vmx-ept"), []string{"cannot give vmx-ept"}},
		{"another model", adopted, processor(model, avx2), processor("max", avx2|avx512f), []string{"makes a CPU of model max, the guest has Skylake-Server; write -cpu Skylake-Server"}},
		{"fewer options", adopted, processor(model, avx2|avx512f), processor(model, avx512f), []string{"CPUID 7.0.EBX bit 5", "write the -cpu options"}},
		{"more options", adopted, processor(model, avx512f), processor(model, avx2|avx512f), nil},
		{"a lesser host, and the guest has its own", own, processor("host", avx2|avx512f), processor("host", avx2), []string{"7.0.EBX bit 16", "choose another host"}},
		{"a host of another vendor repeats nothing", adopted, register("80000001.EDX", 0x0183f3ff), register("1.EDX", 0), nil},
		{"a host of another vendor lacks something", adopted, register("80000001.EDX", 0x0193f3ff), register("1.EDX", 0), []string{"80000001.EDX bit 20)"}},
		{"a host of another vendor counts threads otherwise", adopted, register("80000001.ECX", 1<<1), register("1.EDX", 0), nil},
		{"as many", adopted, several(4), several(4), nil},
		{"fewer", adopted, several(3), several(2), []string{"host rome refuses guest web: its start command makes 2 processors, the guest has 3; write -smp 3 in it"}},
		{"more", adopted, several(2), several(4), []string{"makes 4 processors, the guest has 2; write -smp 2 in it"}},
		{"more, of as many places", adopted, of(4, several(2)), of(4, several(4)), nil},
		{"as many, of more places", adopted, of(4, at(0, 1)), of(2, at(0, 1)), []string{"for at most 2 processors, the guest's is for 4; write maxcpus=4"}},
		{"as many, of places that the source does not tell", adopted, at(0, 1), of(2, at(0, 1)), nil},
		{"all, one of which was plugged in", adopted, at(0, 1, 3), at(0, 1, 3), nil},
		{"all, and more", adopted, of(4, at(0, 1, 3)), of(4, at(0, 1, 2, 3)), nil},
		{"as many others", adopted, at(0, 1, 3), at(0, 1, 2), []string{"makes 3 processors, the guest has 3, of which those of cpu-index 3 are not there; write -smp 4 in it", "or the -device of each"}},
		{"more others", adopted, at(0, 5), at(0, 1, 2), []string{"makes 3 processors, the guest has 2, of which those of cpu-index 5 are", "write -smp 6 in it"}},
		{"fewer, and which", adopted, at(0, 1, 2, 3), at(0, 1), []string{"makes 2 processors, the guest has 4, of which those of cpu-index 2, 3 are", "write -smp 4 in it"}},
		{"an older source has as many as here", adopted, several(3), at(0, 1, 2), nil},
		{"an older source has more than here", adopted, several(3), at(0, 1), []string{"makes 2 processors, the guest has 3; write -smp 3 in it"}},
		{"a source that does not tell how many", adopted, several(0), several(2), nil},
		{"an older source", own, vm.Facts{CPU: "max"}, processor("max", avx2), nil},
		{"a source that tells nothing", own, vm.Facts{}, processor("max", avx2, "hle"), nil},
		{"a QEMU that tells nothing", own, processor("cortex-a57", avx2), vm.Facts{CPU: "cortex-a57"}, nil},
		{"many", adopted, processor(model, 0xffffffff), processor(model, 0), []string{"bit 11 and 20 more)"}},
	} {
		err := LacksProcessor("rome", Guest{Name: "web", Facts: c.there, Started: c.started}, c.here)
		agenttest.Refused(t, c.name, err, migration.CodeHypervisor, c.words...)
		if err != nil && !c.started && strings.Contains(err.Error(), "start") {
			t.Errorf("%s: %v: its agent starts that guest, not a person", c.name, err)
		}
	}
}

// TestProcessorIsBounded: a model, or a machine, that would be an option of QEMU's, and lists without end, are
// refused; what an older source tells, without features, is not.
func TestProcessorIsBounded(t *testing.T) {
	many := map[string]uint32{}
	for i := range mostRegisters + 1 {
		many[fmt.Sprintf("%x.EAX", i)] = 1
	}
	for name, c := range map[string]struct {
		facts vm.Facts
		ok    bool
	}{
		"none":             {vm.Facts{}, true},
		"older":            {vm.Facts{CPU: "Opteron_G5"}, true},
		"whole":            {vm.Facts{CPU: "Skylake-Server-v4", Features: &vm.Features{CPUID: map[string]uint32{"7.0.EBX": 1, "80000001.EDX": 2}, Unavailable: []string{"hle"}}}, true},
		"options":          {vm.Facts{CPU: "max,-avx2"}, false},
		"an option":        {vm.Facts{CPU: "-S"}, false},
		"two lines":        {vm.Facts{CPU: "max\nmin"}, false},
		"a machine":        {vm.Facts{Machine: "pc-q35-rhel9.6.0"}, true},
		"a file for it":    {vm.Facts{Machine: "pc-q35-10.0,firmware=/etc/shadow"}, false},
		"processors":       {vm.Facts{CPUs: []int{0, 1, 4095}}, true},
		"one below 0":      {vm.Facts{CPUs: []int{-1, 0}}, false},
		"one beyond all":   {vm.Facts{CPUs: []int{0, mostCPUs}}, false},
		"many processors":  {vm.Facts{CPUs: make([]int, mostCPUs+1)}, false},
		"no register":      {vm.Facts{Features: &vm.Features{CPUID: map[string]uint32{"7.0.EBX\x1b[2J": 1}}}, false},
		"many registers":   {vm.Facts{Features: &vm.Features{CPUID: many}}, false},
		"many unavailable": {vm.Facts{Features: &vm.Features{Unavailable: make([]string, mostFeatures+1)}}, false},
	} {
		if err := CheckMachine(c.facts); (err == nil) != c.ok {
			t.Errorf("%s: %v", name, err)
		} else if err != nil && strings.ContainsAny(err.Error(), "\n\x1b") {
			t.Errorf("%s: %q: want one line", name, err)
		}
	}
}
