package qemu

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"godwit/vm"
	"godwit/vm/qemu/qmp"
)

// emulatedCPU is the processor of a guest that is emulated. It does not call `rep movsb` and `rep stosb` fast (ERMS,
// FSRM: leaf 7 of CPUID): a kernel copies by these then, and emulated they take each byte by itself. Without, a guest
// copied seven times as fast, and got new pages three times as fast (docs/experiments.md).
const emulatedCPU = "max,-erms,-fsrm"

// CPU is the model, with its options, that shows a guest the processor that facts tell of.
func CPU(facts vm.Facts) string {
	const erms = 1 << 9 // of 7.0.EBX
	if facts.Accel == "tcg" && facts.CPU == "max" && facts.Features != nil && facts.Features.CPUID["7.0.EBX"]&erms == 0 {
		return emulatedCPU
	}
	return facts.CPU
}

// processors fills in the CPU model without its architecture, which processors there are,
// and what the first can do.
func (p *Process) processors(ctx context.Context, f *vm.Facts) error {
	var cpus []struct {
		Path  string `json:"qom-path"`
		Index int    `json:"cpu-index"` // one that was plugged in has it by its place
	}
	if err := p.qmp.Do(ctx, "query-cpus-fast", nil, &cpus); err != nil || len(cpus) == 0 {
		return err
	}
	name, err := p.typeOf(ctx, cpus[0].Path)
	if err != nil {
		return err
	}
	name = strings.TrimSuffix(name, "-cpu")
	if i := strings.LastIndexByte(name, '-'); i >= 0 {
		name = name[:i]
	}
	f.CPU, f.VCPUs = name, len(cpus)
	for _, c := range cpus {
		f.CPUs = append(f.CPUs, c.Index)
	}
	slices.Sort(f.CPUs)
	var places []struct{}
	refused := new(qmp.Error)
	if err := p.qmp.Do(ctx, "query-hotpluggable-cpus", nil, &places); err != nil && !errors.As(err, &refused) {
		return err // a machine in which none can be plugged in refuses
	}
	f.MaxCPUs = len(places)

	var features vm.Features
	err = p.features(ctx, cpus[0].Path, &features)
	if errors.As(err, &refused) {
		return nil // not an x86 processor
	}
	f.Features = &features
	return err
}

// featureWord is an X86CPUFeatureWordInfo of QEMU's (qapi/machine-target.json).
type featureWord struct {
	Leaf     uint32  `json:"cpuid-input-eax"`
	Subleaf  *uint32 `json:"cpuid-input-ecx"`
	Register string  `json:"cpuid-register"`
	Bits     uint32  `json:"features"`
}

// features reads what the processor at a path shows its guest. QEMU has taken out of
// feature-words what it cannot give, and has no words for what is in MSRs: such features are
// known by their names in unavailable-features only.
func (p *Process) features(ctx context.Context, path string, f *vm.Features) error {
	var words []featureWord
	if err := p.property(ctx, path, "feature-words", &words); err != nil {
		return err
	}
	f.CPUID = map[string]uint32{}
	for _, w := range words {
		register := fmt.Sprintf("%x.%s", w.Leaf, w.Register)
		if w.Subleaf != nil {
			register = fmt.Sprintf("%x.%x.%s", w.Leaf, *w.Subleaf, w.Register)
		}
		if w.Bits != 0 {
			f.CPUID[register] = w.Bits
		}
	}
	return p.property(ctx, path, "unavailable-features", &f.Unavailable)
}
