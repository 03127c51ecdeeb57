package lab

import (
	"bytes"
	"fmt"
	"strings"
	"time"

	"godwit/agent/hook"
	"godwit/agent/record"
	"godwit/migration"
)

// metrics are the series that a host serves now.
func (p *trial) metrics(host string) map[string]float64 {
	p.Helper()
	var text bytes.Buffer
	p.must(p.w.agents[host].client.Metrics(p.Context(), &text))
	out := map[string]float64{}
	for line := range strings.Lines(text.String()) {
		at := strings.LastIndexByte(line, ' ')
		if strings.HasPrefix(line, "#") || at < 0 {
			continue
		}
		var v float64
		if _, err := fmt.Sscan(line[at+1:], &v); err != nil {
			p.Fatalf("%s: %q: %v", host, line, err)
		}
		out[line[:at]] = v
	}
	return out
}

// near says whether a sum of seconds is that of durations which were added elsewhere.
func near(sum float64, d time.Duration) bool {
	return sum > d.Seconds()-1e-6 && sum < d.Seconds()+1e-6
}

// counted holds the metrics of both hosts against the reports of everything that was asked
// of a guest, of which moved is the one that completed.
func (p *trial) counted(moved record.Report) {
	p.Helper()
	here, there := p.metrics("montreal"), p.metrics("sanjose")
	all, err := p.w.agents["montreal"].client.Reports(p.Context())
	p.must(err)
	outcomes, phases, wire, disk := map[migration.Outcome]int{}, map[migration.Phase]time.Duration{}, int64(0), int64(0)
	for _, rep := range all {
		outcomes[rep.Outcome]++
		for _, ph := range rep.Phases {
			phases[ph.Name] += time.Duration(ph.End - ph.Start)
		}
		for _, n := range rep.WireBytes {
			wire += n
		}
		disk += rep.DiskBytes
	}
	for _, o := range migration.Outcomes {
		if got := here[fmt.Sprintf("godwit_migrations_total{outcome=%q,role=%q}", o, migration.AtSource)]; got != float64(outcomes[o]) {
			p.Errorf("the source counts %v as %s, want %d", got, o, outcomes[o])
		}
	}
	for _, ph := range migration.Phases {
		if got := here[fmt.Sprintf("godwit_migration_phase_seconds_sum{phase=%q}", ph)]; !near(got, phases[ph]) {
			p.Errorf("phase %s took %v s by the metrics, %v by the reports", ph, got, phases[ph])
		}
	}
	down, ok := moved.VMDowntime()
	if got := here["godwit_migration_vm_downtime_seconds_sum"]; !ok || !near(got, down) {
		p.Errorf("downtime %v s by the metrics, %v by the report", got, down)
	}
	for series, want := range map[string]int64{
		`godwit_migration_wire_bytes_total{path="public-public",peer="sanjose"}`: wire, `godwit_migration_disk_bytes_total`: disk,
		`godwit_migration_vm_downtime_seconds_count`: 1, `godwit_migrations_running{role="source"}`: 0, `godwit_guests{status="running"}`: 0,
		fmt.Sprintf("godwit_hook_calls_total{event=%q,result=%q}", migration.PreSourceSuspend, hook.TimedOut): 1,
		fmt.Sprintf("godwit_hook_calls_total{event=%q,result=%q}", migration.PreMigrationStart, hook.Refused): 1,
	} {
		if got := here[series]; got != float64(want) || want < 0 {
			p.Errorf("montreal: %s is %v, want %d", series, got, want)
		}
	}
	for series, want := range map[string]int64{
		fmt.Sprintf("godwit_migrations_total{outcome=%q,role=%q}", migration.Completed, migration.AtDestination): 1,
		`godwit_guest_status{guest="web",status="running"}`:                                                      1, `godwit_held_packets_total`: *moved.Held,
		fmt.Sprintf("godwit_connections_total{fate=%q}", migration.Moved):         int64(moved.Survival.Moved),
		fmt.Sprintf("godwit_events_total{event=%q}", migration.HandoverDone):      1,
		`godwit_migration_wire_bytes_total{path="public-public",peer="montreal"}`: 0,
	} {
		if got := there[series]; got != float64(want) {
			p.Errorf("sanjose: %s is %v, want %d", series, got, want)
		}
	}
	if n := here["godwit_journal_sync_seconds_count"]; n < 1 || there["godwit_journal_sync_seconds_count"] < 1 || wire == 0 || disk == 0 {
		p.Errorf("%v syncs here, %v there, %d bytes on the wire, %d of disks", n, there["godwit_journal_sync_seconds_count"], wire, disk)
	}
}
