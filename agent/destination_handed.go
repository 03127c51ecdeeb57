package agent

import (
	"fmt"
	"slices"
	"time"

	"godwit/agent/care"
	"godwit/agent/handed"
	"godwit/agent/record"
	"godwit/migration"
	"godwit/vm/guest"
)

// This file is the end of a handover: what became of the guest's connections and addresses is kept and told.

// handed is that the handover is done, and writes that down.
func (m *incoming) handed(joins *guest.Joins, users *guest.Users) error {
	g := m.work.guest
	survey := &record.Survey{}
	if !m.plan.KeepsAddress() {
		g.Remember(func(h *care.Held) {
			h.Addresses = slices.Clone(m.plan.Next)
			for i := range h.Addresses {
				h.Addresses[i].Granted, h.Addresses[i].Handover = h.Description.Silent(), m.plan.ID
			}
			if m.work.keepsOld {
				h.Addresses = append(h.Addresses, handed.NotCurrent(m.plan.Held)...)
			}
			h.Active, h.Table, h.Endpoint = 1-m.plan.Active, m.table(), m.lastEndpoint()
			h.Unnamed = m.a.config.DNS != nil
		})
	}
	if joins != nil {
		survey.Total, survey.Moved = joins.Total-joins.Ended, joins.Joined
		survey.Tunnelled = len(joins.Unable) + joins.Omitted
		for _, u := range joins.Unable {
			survey.Unable = append(survey.Unable, fmt.Sprintf("%s ↔ %s: %s", u.Local, u.Remote, u.Why))
		}
	}
	if users != nil {
		survey.Total += users.TCP
		survey.Tunnelled += users.TCP
	}
	m.work.survey = survey
	return m.writeHanded()
}

// writeHanded is the end of a handover. What became of the guest is written down first, for later agents; where that
// cannot be, as on a full disk, it is tried again, and nothing that was done in the guest is done again, or taken for
// failed.
func (m *incoming) writeHanded() error {
	g, survey := m.work.guest, m.work.survey
	if err := m.a.guests.Save(g); err != nil {
		m.rec.NoteOnce(fmt.Sprintf("the handover is done, and cannot be written down on %s yet, as where a disk is full; it is tried again", m.plan.To))
		return err
	}
	if err := m.a.detours.CatchUp(); err != nil { // as leadTo may have left to it; else it is tried again each second
		m.a.log.Warn("what leads to guests", "error", err)
	}
	if err := g.Announce(m.a.ctx, m.a.config); err != nil {
		m.rec.Note("its LAN was not told where it is: " + err.Error())
	}
	now, told := m.rec.Now(), m.landed()
	m.rec.Edit(func(r *record.Report) { r.Survey, r.Handed, r.Old, r.Next = survey, now, told.Held, told.Next })
	m.rec.Add(record.Event{Kind: "event", Name: migration.HandoverDone, At: now, Network: told.Network, Next: told.Next})
	m.work.named = m.a.tellNames(m.plan, m.rec)
	m.rec.Enter(migration.Settle, time.Now())
	return nil
}
