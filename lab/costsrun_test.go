package lab

import (
	"testing"

	"godwit/lab/report"
	"godwit/lab/scenario"
)

// runs is a scenario that a test runs to its end, in which all goes well.
func runs(t *testing.T, text string, opts Options) *report.Report {
	t.Helper()
	guestsImage(t)
	s, err := scenario.Parse(t.Name(), []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	rep, err := Run(t.Context(), s, opts)
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range rep.Unmet {
		t.Error(line)
	}
	for _, m := range rep.Migrations {
		if m.Outcome != report.Completed {
			t.Fatalf("%s: %s", m.Outcome.Word(), m.Reason)
		}
	}
	return rep
}

const costsWorld = `
sites:
  - {name: montreal, guest_net: {v4: 10.1.1.0/24}, uplinks: [{name: public, rate: 300mbit, delay: 5ms}]}
  - {name: sanjose, guest_net: {v4: 10.2.1.0/24}, uplinks: [{name: public, rate: 300mbit, delay: 5ms}]}
clients:
  - {name: phone, at: internet}
guests:
  - {name: web, site: montreal, memory: 128MiB, run: ["dirty size=8MiB hot=25% rate=1MiB/s"]}
traffic:
  - {name: ticks, client: phone, guest: web, kind: ticks}
end: {after_last_migration: 2s, timeout: 120s}
expect:
  - {migrations: completed}
  - {leftovers: none}
`

// TestCosts: a bench's run tells what a move cost, and what is the least, on the way back too: there it is less, as the
// host has the most of it.
func TestCosts(t *testing.T) {
	const steps = `
steps:
  - {at: 3s, migrate: {guest: web, to: sanjose, transfer: lanes}}
  - {at: {guest: web, phase: settle, plus: 4s}, migrate: {guest: web, to: montreal, transfer: lanes}}
`
	rep := runs(t, "name: costs"+costsWorld+steps, Options{Costs: true})
	if len(rep.Migrations) != 2 {
		t.Fatalf("%d migrations", len(rep.Migrations))
	}
	for i, m := range rep.Migrations {
		if m.CPUS == nil || *m.CPUS <= 0 || m.Slowdown == nil || *m.Slowdown <= 0 || m.WireBytes == nil ||
			m.LeastBytes == nil || *m.LeastBytes <= 0 || *m.LeastBytes > *m.WireBytes {
			t.Errorf("migration %d: cpu_s %v, slowdown %v, wire_bytes %v, least_bytes %v, %q", i+1,
				of(m.CPUS), of(m.Slowdown), of(m.WireBytes), of(m.LeastBytes), m.WhyNull)
		}
	}
	if there, back := of(rep.Migrations[0].LeastBytes), of(rep.Migrations[1].LeastBytes); back >= there/2 {
		t.Errorf("at the least %d bytes there, and %d back", there, back)
	}
}

// of is a number, or 0.
func of[T any](n *T) (value T) {
	if n != nil {
		value = *n
	}
	return value
}

// TestPlainPostCopy: the lab moves a guest by QEMU's own post-copy, and leaves nothing; of what nobody is there to tell
// the report says so.
func TestPlainPostCopy(t *testing.T) {
	rep := runs(t, "name: plain"+costsWorld+"steps:\n  - {at: 3s, migrate: {guest: web, to: sanjose}}\n", Options{Costs: true, Plain: true})
	m := rep.Migrations[0]
	if m.Transfer != "plain" || of(m.MemoryS) <= 0 || of(m.WireBytes) <= 0 || of(m.CPUS) <= 0 || of(m.VMDowntimeMS) <= 0 || m.PostCopy == nil {
		t.Errorf("transfer %s, memory_s %v, wire_bytes %v, cpu_s %v, vm_downtime_ms %v, post_copy %+v, %q",
			m.Transfer, of(m.MemoryS), of(m.WireBytes), of(m.CPUS), of(m.VMDowntimeMS), m.PostCopy, m.WhyNull)
	}
	if m.LeastBytes != nil || m.WhyNull["least_bytes"] == "" || m.Slowdown != nil || m.WhyNull["slowdown"] == "" {
		t.Errorf("least_bytes %v, slowdown %v, %q", of(m.LeastBytes), of(m.Slowdown), m.WhyNull)
	}
}
