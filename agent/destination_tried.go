package agent

import (
	"godwit/agent/written"
	"godwit/vm/guest"
)

// What the tries of a handover have come to is in the journal, too. An agent that is started again between two of them
// would else have the next one announce by ids of which clients have heard, and that were withdrawn since, and would
// tell of none of those that followed before.

// noteTried writes it down. That is for who is started again on this host alone, and not waited for to be on its disk:
// no guest outlives its host.
func (m *incoming) noteTried() {
	tried := &written.Handover{Used: m.work.used, Main: m.work.mainNext, Said: m.work.sends}
	if joins := m.work.joins; joins != nil { // who could not follow is counted, and asked for anew
		tried.Joins = &guest.Joins{Total: joins.Total, Joined: joins.Joined, Ended: joins.Ended, Omitted: joins.Omitted + len(joins.Unable), Endpoints: joins.Endpoints}
	}
	m.stepping.Lock()
	defer m.stepping.Unlock()
	m.mu.Lock()
	m.tried = tried
	m.mu.Unlock()
	if err := m.log.Append(m.journal(m.snapshot()), false); err != nil {
		m.a.log.Warn("journal", "migration", m.plan.ID, "error", err, "consequence", "an agent that is started again just now may use endpoint ids once more, and does not know whether the guest sends by its next address")
	}
}

// foundTried is what an earlier agent has written down.
func (m *incoming) foundTried(tried *written.Handover) {
	if m.tried = tried; tried == nil {
		return
	}
	m.work.joins, m.work.used, m.work.mainNext, m.work.sends, m.work.known = tried.Joins, tried.Used, tried.Main, tried.Said, true
}

// lastEndpoint is the last endpoint id that the handover has used, or may have.
func (m *incoming) lastEndpoint() uint8 {
	if m.work.used != 0 {
		return m.work.used
	}
	last := m.work.preparation.Endpoint
	for _, addr := range m.plan.Next {
		last = max(last, addr.Endpoint)
		if addr.Endpoint != 0 && addr.Endpoint < m.work.preparation.Endpoint {
			last = addr.Endpoint // the ids began again
		}
	}
	return last
}
