package agent

import (
	"context"

	"godwit/agent/compare"
	"godwit/vm"
	"godwit/vm/qemu"
)

// noteMemory puts the stopped guest's sums where the destination finds them; nil: nothing is compared.
func (m *outgoing) noteMemory(ctx context.Context, memory *qemu.Memory) error {
	if memory == nil {
		return nil
	}
	return m.rec.Timed("compare memory: read it here", func() error { return compare.Left(ctx, m.plan.ID, memory) })
}

// compareMemory holds the guest's memory, which does not run yet, against what it was at
// the source. The error names pages that differ.
func (m *incoming) compareMemory(ctx context.Context) error {
	machine := m.work.guest.Machine()
	memory, err := compare.MemoryOf(ctx, machine)
	if err != nil || memory == nil {
		return err
	}
	if status, err := machine.Status(ctx); err != nil || status == vm.Running { // an earlier agent started it
		return err
	}
	return m.rec.Timed("compare memory", func() error {
		early := false
		select {
		case <-m.handedOver():
			early = mayHandEarly(m.plan)
		default:
		}
		return compare.Arrived(ctx, m.plan, memory, early, m.work.preparation.Facts.Accel == "kvm")
	})
}

// compareLate is for pages that followed the guest, once the last has come. The guest runs on, whatever it finds:
// the lab reads it.
func (m *incoming) compareLate() {
	if err := m.late.Compare(m.plan); err != nil {
		m.rec.Note(err.Error())
	}
}
