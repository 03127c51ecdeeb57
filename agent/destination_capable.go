package agent

import (
	"context"

	"godwit/agent/capable"
	"godwit/agent/talk"
	"godwit/migration"
	"godwit/vm"
	"godwit/vm/qemu"
)

// refuses is the answer of a host that does not take an offered guest.
func refuses(host string, offer talk.Offer, code migration.Code, format string, args ...any) error {
	return capable.Refuses(host, offer.Plan.Guest, code, format, args...)
}

// sameRoot refuses a guest of an image whose root is another one here, or missing.
func (a *Agent) sameRoot(offer talk.Offer) error {
	if offer.Root == "" {
		return nil
	}
	here, err := a.config.RootMark(offer.Description)
	switch image := offer.Description.Image; {
	case err != nil:
		return refuses(a.config.Host, offer, migration.CodeCapacity, "%v", err)
	case here == "":
		return refuses(a.config.Host, offer, migration.CodeCapacity, "it has no image %s; name it in its agent's configuration", image)
	case here != offer.Root:
		return refuses(a.config.Host, offer, migration.CodeCapacity, "its root of image %s is not the source's; copy that file here", image)
	}
	return nil
}

// compareMachines makes sure that the guest finds in the QEMU that waits what its processor has, and its disks in
// the files that were made for them.
func (m *incoming) compareMachines(ctx context.Context, machine *qemu.Process) error {
	here, err := machine.Facts(ctx)
	if err != nil {
		return err
	}
	p := m.work.preparation
	coming := talk.Offer{Plan: p.Plan, Description: p.Description, Facts: p.Facts}.Guest()
	if err := capable.LacksProcessor(m.a.config.Host, coming, here); err != nil {
		return err
	}
	return capable.OtherDisks(m.a.config.Host, coming, m.work.guest.Held().Description.Disks, here.Disks)
}

// startedApart explains why a QEMU that waits could not be made ready, where it is another user's, or confined: it may do
// little then, and make no socket beside the agent's.
func (m *incoming) startedApart(ctx context.Context, machine interface {
	Facts(ctx context.Context) (vm.Facts, error)
}, err error) error {
	if here, unknown := machine.Facts(ctx); unknown != nil || !here.Apart {
		return err
	}
	return capable.Refuses(m.a.config.Host, m.plan.Guest, migration.CodeHypervisor, "its start command has QEMU be another user's, confined by AppArmor, or in "+
		"another root directory, and it cannot be made ready (%v); have it run there as the agent does: without -run-with user= or chroot=, -runas, -chroot", err)
}
