package random

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"godwit/migration"
	"godwit/policy"
)

// steps moves the guests about, each where it is not. In half of all scenarios that is all, or
// a host is evacuated at last; in the others something is done to the first migration of a guest.
func (m *maker) steps() {
	m.put("steps:")
	calm, at := m.chance(0.5), 3
	for range 1 + m.IntN(3) {
		g := &m.vms[m.IntN(len(m.vms))]
		to := m.elsewhere(g.host)
		m.put("  - {at: %ds, migrate: {guest: %s, to: %s%s}}", at, g.name, to, m.means(*g, to))
		g.host = to
		at += pick(m, 2, 5, 10)
	}
	if calm {
		if m.chance(0.15) {
			host := pick(m, m.vms...).host
			m.put("  - {at: %ds, evacuate: {host: %s}}", at+60, host)
			m.disturbed = m.disturbed || slices.ContainsFunc(m.vms, func(g guest) bool { return g.host == host && g.busy }) // see means: it moves them in mode auto
		}
		return
	}
	moved := slices.DeleteFunc(slices.Clone(m.vms), func(g guest) bool { return !strings.Contains(m.text.String(), "migrate: {guest: "+g.name) })
	for range 1 + m.IntN(2) {
		phase := pick(m, "check", "prepare", "copy", "copy", "switch", "handover", "settle")
		m.put("  - {at: {guest: %s, phase: %s, plus: %dms}, %s}", pick(m, moved...).name, phase, m.IntN(300), m.disturbance(moved))
	}
}

// elsewhere is a host that is not here.
func (m *maker) elsewhere(here string) string {
	var hosts []string
	for _, s := range m.places {
		hosts = append(hosts, s.hosts...)
	}
	return pick(m, slices.DeleteFunc(hosts, func(h string) bool { return h == here })...)
}

// means are the keys of a migrate step but for who and where. A budget that may not be met
// refuses or ends what asks for it, and so may a guest that is busy where its mode finds no way.
func (m *maker) means(g guest, to string) string {
	var keys []string
	mode, transfer, budget, limit := "", "", migration.DefaultDowntime, 1000 // Mbit/s
	if m.chance(0.4) {
		mode = pick(m, "precopy", "hybrid", "postcopy", "stopcopy")
		keys = append(keys, "mode: "+mode)
	}
	if m.chance(0.4) {
		transfer = pick(m, "lanes", "mptcp")
		if mode != "hybrid" && mode != "postcopy" && m.chance(0.6) {
			transfer = pick(m, "qemu-tcp", "qemu-mptcp", "qemu-multifd", "qemu-xbzrle")
		}
		keys = append(keys, "transfer: "+transfer)
		m.disturbed = m.disturbed || g.busy && strings.HasPrefix(transfer, "qemu")
	}
	if m.chance(0.25) {
		keys = append(keys, "network: "+pick(m, "mptcp", "drain", "tunnel", "auto"))
	}
	switch {
	case mode == "stopcopy":
		budget = time.Minute
		keys = append(keys, "downtime: 60s")
	case m.chance(0.15):
		budget = pick(m, 200*time.Millisecond, time.Second)
		keys = append(keys, fmt.Sprintf("downtime: %v", budget))
	}
	if m.chance(0.1) {
		limit = pick(m, 15, 80)
		keys = append(keys, fmt.Sprintf("bandwidth: %dmbit", limit))
	}
	m.disturbed = m.disturbed || mode == "precopy" || g.busy && mode != "hybrid" && mode != "postcopy" || m.lossy
	m.disturbed = m.disturbed || !m.fits(g.host, to, transfer, limit, budget)
	return strings.Join(append([]string{""}, keys...), ", ")
}

// What a guest that is not busy takes of a pause beside the least, and what it may write all the same, Mbit/s: one with two
// flows of ticks, a slow download and an idle loop wrote 82.
const (
	pagesTake  = 50 * time.Millisecond
	quietWrite = 100
)

// fits says whether a guest that is not busy keeps its budget for sure on its way from one host to another by the worst
// of their uplinks, of which limit Mbit/s may be used. QEMU's own transfers send devices' state unpacked, and have only
// rounds for what is written.
func (m *maker) fits(from, to, transfer string, limit int, budget time.Duration) bool {
	way := 0 // ms
	for _, host := range []string{from, to} {
		at := m.places[slices.IndexFunc(m.places, func(s site) bool { return slices.Contains(s.hosts, host) })]
		way, limit = way+at.far, min(limit, at.slowest)
	}
	tail := int64(policy.PackedTail)
	if strings.HasPrefix(transfer, "qemu") {
		tail = 0 // as QEMU writes it
		if limit <= quietWrite && budget < time.Minute {
			return false
		}
	}
	return policy.Least(2*time.Duration(way)*time.Millisecond, tail, int64(limit)*1e6/8)+pagesTake <= budget
}

func (m *maker) disturbance(moved []guest) string {
	s := pick(m, m.places...)
	uplink := pick(m, append(s.uplinks, "all")...)
	kind := pick(m, "cut", "degrade", "kill", "abort", "exec", "move")
	person := pick(m, m.people...)
	if kind == "move" && !person.follows {
		kind = "kill"
	}
	m.disturbed = m.disturbed || kind != "exec" && kind != "move"
	m.hurt = m.hurt || kind != "exec" && kind != "abort"
	m.lossy = m.lossy || kind == "cut" || kind == "degrade"
	switch kind {
	case "cut":
		return fmt.Sprintf("cut: {site: %s, uplink: %s, for: %dms}", s.name, uplink, m.vanish(pick(m, 300, 1000, 3000, 8000)))
	case "degrade":
		change := pick(m, "loss: 2%", "loss: 20%", "rate: 5mbit", "delay: 150ms", "rate: 10mbit, delay: 80ms")
		return fmt.Sprintf("degrade: {site: %s, uplink: %s, %s, for: %ds}", s.name, uplink, change, pick(m, 1, 4, 10))
	case "kill":
		return fmt.Sprintf("kill: {agent: %s, restart_after: %dms}", pick(m, s.hosts...), pick(m, 0, 300, 1500))
	case "abort":
		return "abort: {guest: " + pick(m, moved...).name + "}"
	case "exec":
		return "exec: {guest: " + pick(m, moved...).name + ", command: \"echo seen > /tmp/seen\"}"
	}
	to := "internet"
	if person.at == to || m.chance(0.5) {
		to = pick(m, m.places...).name
	}
	return fmt.Sprintf("move: {client: %s, to: %s, gap: %dms}", person.name, to, m.vanish(pick(m, 0, 500, 2000)))
}

// vanish notes for how many ms packets do.
func (m *maker) vanish(ms int) int {
	m.away = max(m.away, ms)
	return ms
}
