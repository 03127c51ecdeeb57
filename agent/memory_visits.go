package agent

import (
	"godwit/agent/visits"
	"godwit/transfer/encode/visit"
	"godwit/transfer/proxy"
)

// beginVisit begins to keep memory of the guest that leaves; nil where that is not wanted,
// or there is no room.
func (m *outgoing) beginVisit() *visit.Writer {
	memory := m.work.facts.Memory
	if memory > m.a.config.KeepMemory {
		return nil
	}
	if _, ok, err := m.a.roomFor("visits", memory); !ok || err != nil {
		return nil
	}
	w, err := visits.Begin(m.a.config)
	if err != nil {
		m.a.log.Warn("memory is not kept for a return", "migration", m.plan.ID, "error", err)
		return nil
	}
	return w
}

// endVisit keeps what was written, now that the guest has left, or drops it.
func (m *outgoing) endVisit(left bool) {
	w := m.work.visit
	m.work.visit = nil
	if w == nil {
		return
	}
	if !left {
		w.Close() //nolint:errcheck // it is given up
		return
	}
	if err := visits.Keep(m.a.config, w, m.plan.Guest, m.a.log); err != nil {
		m.a.log.Info("memory is not kept for a return", "migration", m.plan.ID, "error", err)
	}
}

// elsewhere are the files here whose contents the guest that comes may have in its memory.
func (m *incoming) elsewhere() []*visit.File {
	kept, images := visits.Elsewhere(m.a.config, m.plan.Guest, m.work.preparation.Description.Image)
	if kept == nil {
		return images
	}
	return append([]*visit.File{kept}, images...)
}

// besideFrom are the guests that come from a host, which may share what they bring. admit has
// seen that each is that host's by its certificate.
func (a *Agent) besideFrom(host string) *proxy.Beside {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.beside == nil {
		a.beside = map[string]*proxy.Beside{}
	}
	if a.beside[host] == nil {
		a.beside[host] = new(proxy.Beside)
	}
	return a.beside[host]
}

// forgetVisit removes it: the guest is here.
func (m *incoming) forgetVisit() {
	if err := visits.Forget(m.a.config, m.plan.Guest); err != nil {
		m.a.log.Warn("remove kept memory", "guest", m.plan.Guest, "error", err)
	}
}
