package agent

import (
	"context"

	"godwit/agent/config"
	"godwit/agent/limits"
	"godwit/agent/sample"
	"godwit/migration"
	"godwit/vm"
	"godwit/vm/qemu"
)

// beginSample looks at memory, beside the rest of the check; nothing hangs on it.
func (m *outgoing) beginSample() {
	answer := make(chan *sample.Sample, 1)
	m.work.samples = answer
	machine := m.guest.Machine()
	go func() {
		ctx, cancel := limits.Sample.On(m.a.ctx)
		defer cancel()
		s, err := sampleOf(ctx, machine)
		if err != nil {
			m.a.log.Info("the guest's memory is not sampled", "migration", m.plan.ID, "error", limits.Says(ctx, err))
		}
		answer <- s
	}()
}

// sampled is the sample that was begun; nil: there is none.
func (m *outgoing) sampled(ctx context.Context) *sample.Sample {
	if m.work.samples == nil { // an agent that was started again goes on here
		return nil
	}
	select {
	case s := <-m.work.samples:
		m.work.samples = nil
		return s
	case <-ctx.Done():
		return nil
	}
}

func sampleOf(ctx context.Context, machine vm.Machine) (*sample.Sample, error) {
	process, ok := machine.(*qemu.Process)
	if !ok {
		return nil, nil //nolint:nilnil // another hypervisor
	}
	memory, err := process.Memory(ctx)
	if err != nil {
		return nil, err
	}
	return sample.Take(ctx, memory)
}

// foresee begins to code what of the sample the destination has not, beside the rest of the check.
func (m *outgoing) foresee(n config.Neighbour, s *sample.Sample) {
	if s == nil {
		return
	}
	answer := make(chan *sample.Foresight, 1)
	m.work.foresight = answer
	coding, link, has := codingOf(m.plan), float64(m.carried(n))/8, m.work.accepted.Has
	go func() {
		ctx, cancel := limits.Sample.On(m.a.ctx)
		defer cancel()
		f := s.Foresee(coding, link, has)
		f.LookBetween(ctx)
		answer <- f
	}()
}

// codingOf is how a migration packs pages.
func codingOf(plan migration.Plan) sample.Coding {
	switch {
	case plan.OwnPath():
		return sample.Best
	case plan.Transfer == "qemu-multifd": // see migrateOptions
		return sample.Zstd
	case plan.Transfer == "qemu-xbzrle":
		return sample.Xbzrle
	}
	return sample.AsIs
}

// foreseen is what foresee has found, and a second look; nil: nothing is known.
func (m *outgoing) foreseen(ctx context.Context) *sample.Basis {
	if m.work.foresight == nil {
		return nil
	}
	select {
	case f := <-m.work.foresight:
		m.work.foresight = nil // the sample is of no use any more
		if err := f.LookAgain(ctx); err != nil {
			m.a.log.Info("the guest's memory is not looked at again", "migration", m.plan.ID, "error", limits.Says(ctx, err))
		}
		return f.Basis(m.work.dirtyRate)
	case <-ctx.Done():
		return nil
	}
}
