package agent

import (
	"errors"
	"io/fs"
	"os"

	"godwit/agent/visits"
	"godwit/transfer/encode/visit"
	"godwit/transfer/proxy"
)

// makeVisitKey makes the key, where one is wanted and there is none.
func (a *Agent) makeVisitKey() {
	if a.config.KeepMemory == 0 {
		return
	}
	if err := visit.MakeKey(a.config.MemoryKey()); err != nil {
		a.log.Warn("memory is not kept for a return", "error", err)
	}
}

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
	key, err := visit.ReadKey(m.a.config.MemoryKey())
	if err != nil {
		m.a.log.Warn("memory is not kept for a return", "migration", m.plan.ID, "error", err)
		return nil
	}
	w, err := visit.Create(m.a.config.StatePath("visits"), key)
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
	if err := w.Name(visits.Name(m.plan.Guest)); err != nil {
		m.a.log.Info("memory is not kept for a return", "migration", m.plan.ID, "error", err)
	}
	visits.Bound(m.a.config, m.a.config.KeepMemory, m.a.log)
}

// elsewhere are the files here whose contents the guest that comes may have in its memory:
// what was kept of an earlier visit, and what it was started from: a kernel that the boot
// loader left in low memory, an initrd that is used as it is.
//
// Nothing is offered where nothing is kept: see keep_memory.
func (m *incoming) elsewhere() (out []*visit.File) {
	if m.a.config.KeepMemory == 0 {
		return nil
	}
	if f, err := visits.Open(m.a.config, m.plan.Guest); err == nil {
		out = append(out, f)
	}
	image := m.a.config.ImageOf(m.work.preparation.Description.Image)
	for _, path := range []string{image.Kernel, image.Initrd} {
		if path == "" {
			continue
		}
		if f, err := visit.Open(path); err == nil {
			out = append(out, f)
		}
	}
	return out
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
	if err := os.Remove(visits.Path(m.a.config, m.plan.Guest)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		m.a.log.Warn("remove kept memory", "guest", m.plan.Guest, "error", err)
	}
}
