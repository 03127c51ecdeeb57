package agent

import (
	"cmp"
	"os"

	"godwit/agent/capable"
	"godwit/migration"
)

// roomToSpill refuses mode stopcopy by our own data path where the disk of STATE has no room for what it brings there. A
// QEMU that is held by a low bandwidth says END as soon as that is lifted, and answers nobody until all behind it was
// read: what of the guest has no room in the buffer lies on that disk then. The paths take some meanwhile, of
// which nobody knows how much; and where the disk got full the guest would have stood still for nothing.
func (m *outgoing) roomToSpill() error {
	if !m.plan.OwnPath() || m.plan.Mode != "stopcopy" || takesAck(m.work.facts) {
		return nil
	}
	buffer := m.a.buffers.New(m.plan, m.work.facts.Memory)
	spills := m.touched() - buffer.Bytes()
	buffer.End() // lanes are opened in prepare, and are promised another
	if spills <= 0 {
		return nil
	}
	owed := m.a.owed(everyone)
	others := owed.copies
	if m.a.share("", "disks") {
		others += owed.disk
	}
	need := spills + others
	free, ok, err := m.a.roomFor("", need-diskReserve) // it goes again, and may take the reserve meanwhile
	if err != nil || ok {
		return err
	}
	return m.problem(migration.CodeCapacity,
		"this host has %d MiB of disk free in %s, and %d MiB are needed%s: in mode stopcopy its QEMU hands over all of its memory at once, and what has no room in memory waits there; free some, give it more memory (--buffer), or use --transfer %s",
		free>>20, m.a.placeOf(""), need>>20, capable.Beside(others), capable.QEMUTransfer(m.work.facts))
}

// touched is how much of the guest's memory may be something else than zeros, bytes. What is in huge pages is not counted
// as its process's.
func (m *outgoing) touched() int64 {
	facts := m.work.facts
	if facts.PageSize > int64(os.Getpagesize()) {
		return facts.Memory
	}
	return min(cmp.Or(capable.ResidentBytes(m.guest.Machine().PID()), facts.Memory), facts.Memory)
}
