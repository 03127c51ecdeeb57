package agent

// Mode hybrid reads of QEMU little more than the paths carry: what is read late is newer. What has not been read when
// the guest is stopped is read in the pause, and of a guest that writes to more memory than the buffer holds that is
// much. So once it is clear that the rest is to follow all is read first, as in mode postcopy, and kept here.

// readAhead has all that QEMU has to say read from now on, and says whether that was: what was written since then is
// read in no time, or no buffer has room for more.
func (m *outgoing) readAhead() bool {
	begins := m.work.rounds.ReadAhead()
	if m.work.lanes == nil {
		return m.work.rounds.CaughtUp(m.plan.Downtime)
	}
	if begins {
		m.work.lanes.ReadAhead(m.work.buffer.Follow(m.plan, m.work.facts.Memory))
		return false
	}
	return m.work.rounds.CaughtUp(m.plan.Downtime) || m.work.lanes.Stats().Full
}
