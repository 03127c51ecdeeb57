package report

import (
	"slices"
	"strings"
	"testing"

	"godwit/lab/scenario"
)

// plan is the scenario that sample is a run of, with these expectations.
func plan(t *testing.T, expect ...string) *scenario.Scenario {
	t.Helper()
	text := `
name: demo
sites:
  - {name: montreal, guest_net: {v4: 10.1.1.0/24}, uplinks: [{name: public}]}
  - {name: sanjose, guest_net: {v4: 10.2.1.0/24}, uplinks: [{name: public}]}
  - {name: dublin, guest_net: {v4: 10.3.1.0/24}, uplinks: [{name: public}]}
clients: [{name: phone}]
guests: [{name: web, site: montreal}, {name: db, site: dublin}]
traffic:
  - {name: ticks, client: phone, guest: web, kind: ticks}
  - {name: download, client: phone, guest: web, kind: download}
  - {name: upload, client: phone, guest: web, kind: upload}
  - {name: requests, client: phone, guest: web, kind: requests}
expect:
`
	for _, e := range expect {
		text += "  - {" + e + "}\n"
	}
	s, err := scenario.Parse("demo.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestCheck(t *testing.T) {
	for _, c := range []struct {
		name   string
		expect string
		change func(*Report)
		unmet  []string
	}{
		{"completed", "migrations: completed", nil, nil},
		{"one aborted", "migrations: completed", func(r *Report) { r.Migrations[1].Outcome, r.Migrations[1].Reason = Aborted, "path gone" },
			[]string{"migrations: migration 2 (web sanjose → dublin) aborted, expected completed: path gone"}},
		{"none took place", "migrations: completed", func(r *Report) { r.Migrations = nil },
			[]string{"migrations: none took place, expected completed"}},
		{"refused", "migrations: refused", nil, []string{
			"migrations: migration 1 (web montreal → sanjose) completed, expected refused",
			"migrations: migration 2 (web sanjose → dublin) completed, expected refused"}},
		{"in order", "migrations: [completed, aborted]", func(r *Report) { r.Migrations[1].Outcome = Aborted }, nil},
		{"in order, too few", "migrations: [completed, aborted]", func(r *Report) { r.Migrations = r.Migrations[:1] },
			[]string{"migrations: 1 took place, expected 2: completed, aborted"}},
		{"a list of one, and two took place", "migrations: [completed]", nil, []string{"migrations: 2 took place, expected 1: completed"}},
		{"a list of one", "migrations: [completed]", func(r *Report) { r.Migrations = r.Migrations[:1] }, nil},
		{"survive", "connections: survive", nil, nil},
		{"a flow died", "connections: survive", func(r *Report) { r.Traffic[0].Survived = false },
			[]string{"connections: traffic ticks did not survive"}},
		{"records", "connections: survive", func(r *Report) {
			r.Traffic[1].RecordsLost, r.Traffic[1].RecordsRepeated, r.Traffic[1].Corrupt = new(int64(3)), new(int64(1)), nil
			r.Traffic[1].WhyNull = map[string]string{"corrupt": "the client died"}
		}, []string{
			"connections: corrupt of traffic download is unknown: the client died",
			"connections: records_lost of traffic download is 3, expected 0",
			"connections: records_repeated of traffic download is 1, expected 0"}},
		{"no record kinds", "connections: survive", func(r *Report) { r.Traffic[0].Kind, r.Traffic[0].RecordsLost = "exec", nil }, nil},
		{"a flow is missing", "connections: survive", func(r *Report) { r.Traffic = r.Traffic[1:] },
			[]string{"connections: traffic ticks is not in the report"}},
		{"moved", "connections: moved", nil, nil},
		{"one stayed on the tunnel", "connections: moved", func(r *Report) { r.Migrations[1].Connections = &Connections{Total: 4, Moved: 3, Tunnelled: 1} },
			[]string{"connections: migration 2 (web sanjose → dublin) moved 3 of 4, expected all"}},
		{"one stayed and survived", "connections: survive", func(r *Report) { r.Migrations[1].Connections = &Connections{Total: 4, Moved: 3, Tunnelled: 1} }, nil},
		{"one was lost", "connections: moved", func(r *Report) { r.Migrations[0].Connections = &Connections{Total: 4, Moved: 3, Lost: 1} },
			[]string{"connections: migration 1 (web montreal → sanjose) lost 1 of 4, expected none"}},
		{"nobody there to move", "connections: moved", func(r *Report) { r.Migrations[0].Connections = &Connections{} },
			[]string{"connections: migration 1 (web montreal → sanjose) had none, expected some that moved"}},
		{"what moved is unknown", "connections: moved", func(r *Report) { r.Migrations[0].Connections = nil },
			[]string{"connections: of migration 1 (web montreal → sanjose) are unknown: no reason was given"}},
		{"an abort moves nothing", "connections: moved", func(r *Report) {
			r.Migrations[0].Outcome, r.Migrations[0].Connections = Aborted, &Connections{Total: 4}
		}, nil},
		{"no migration completed", "connections: moved", func(r *Report) { r.Migrations[0].Outcome, r.Migrations[1].Outcome = Aborted, Refused },
			[]string{"connections: no migration completed, expected that connections moved"}},
		{"gap", "service_gap: {traffic: ticks, below: 139ms}", nil, nil},
		{"gap at the bound", "service_gap: {traffic: ticks, below: 138ms}", nil,
			[]string{"service_gap: of traffic ticks is 138ms, expected below 138ms"}},
		{"gap just below the bound", "service_gap: {traffic: ticks, below: 138ms}", func(r *Report) { r.Traffic[0].ServiceGapMS = new(137.997) }, nil},
		{"gap just over the bound", "service_gap: {traffic: ticks, below: 138ms}", func(r *Report) { r.Traffic[0].ServiceGapMS = new(138.004) },
			[]string{"service_gap: of traffic ticks is 138ms, expected below 138ms"}},
		{"gap unknown", "service_gap: {traffic: ticks, below: 1s}", func(r *Report) { r.Traffic[0].ServiceGapMS = nil },
			[]string{"service_gap: of traffic ticks is unknown: no reason was given"}},
		{"gap of nothing", "service_gap: {traffic: ticks, below: 1s}", func(r *Report) { r.Traffic = nil },
			[]string{"service_gap: traffic ticks is not in the report"}},
		{"vm downtime", "vm_downtime: {guest: web, below: 58ms}", nil, nil},
		{"vm downtime just below", "vm_downtime: {guest: web, below: 57ms}", func(r *Report) { r.Migrations[1].VMDowntimeMS = new(56.9999) }, nil},
		{"vm downtime over", "vm_downtime: {guest: web, below: 50ms}", nil,
			[]string{"vm_downtime: of migration 2 (web sanjose → dublin) is 57ms, expected below 50ms"}},
		{"vm downtime of aborted", "vm_downtime: {guest: web, below: 50ms}",
			func(r *Report) { r.Migrations[1].Outcome, r.Migrations[1].VMDowntimeMS = Aborted, nil },
			[]string{"vm_downtime: of migration 2 (web sanjose → dublin) is unknown: no reason was given"}},
		{"vm downtime of one undone before the pause, and another", "vm_downtime: {guest: web, below: 50ms}", func(r *Report) {
			r.Migrations[1].Outcome, r.Migrations[1].VMDowntimeMS = Aborted, nil
			r.Migrations[1].WhyNull = map[string]string{"vm_downtime_ms": NotPaused}
		}, nil},
		{"vm downtime of one in doubt", "vm_downtime: {guest: web, below: 50ms}",
			func(r *Report) { r.Migrations[1].Outcome, r.Migrations[1].VMDowntimeMS = InDoubt, nil },
			[]string{"vm_downtime: of migration 2 (web sanjose → dublin) is unknown: no reason was given"}},
		{"migration time of aborted", "migration_time: {guest: web, below: 7s}",
			func(r *Report) { r.Migrations[1].Outcome, r.Migrations[1].MigrationS = Aborted, nil }, nil},
		{"vm downtime of a refused alone", "vm_downtime: {guest: web, below: 50ms}", func(r *Report) {
			r.Migrations = r.Migrations[:1]
			r.Migrations[0].Outcome, r.Migrations[0].VMDowntimeMS = Refused, nil
		}, nil},
		{"network downtime of a refused alone", "network_downtime: {guest: web, below: 50ms}", func(r *Report) {
			r.Migrations = r.Migrations[:1]
			r.Migrations[0].Outcome, r.Migrations[0].NetworkDowntimeMS = Refused, nil
		}, nil},
		{"vm downtime of one undone before the pause", "vm_downtime: {guest: web, below: 50ms}", func(r *Report) {
			r.Migrations = r.Migrations[:1]
			r.Migrations[0].Outcome, r.Migrations[0].VMDowntimeMS = Aborted, nil
			r.Migrations[0].WhyNull = map[string]string{"vm_downtime_ms": NotPaused}
		}, nil},
		{"vm downtime of one undone, unknown", "vm_downtime: {guest: web, below: 50ms}", func(r *Report) {
			r.Migrations = r.Migrations[:1]
			r.Migrations[0].Outcome, r.Migrations[0].VMDowntimeMS = Aborted, nil
		}, []string{"vm_downtime: of migration 1 (web montreal → sanjose) is unknown: no reason was given"}},
		{"dropped none", "dropped_packets: none", nil, nil},
		{"dropped some, not none", "dropped_packets: none", func(r *Report) { r.Migrations[0].DroppedPackets = new(int64(7)) },
			[]string{"dropped_packets: of migration 1 (web montreal → sanjose) is 7, expected at most 0"}},
		{"vm downtime unknown", "vm_downtime: {guest: web, below: 50ms}", func(r *Report) {
			r.Migrations = r.Migrations[:1]
			r.Migrations[0].VMDowntimeMS = nil
			r.Migrations[0].WhyNull = map[string]string{"vm_downtime_ms": "no ticks"}
		}, []string{"vm_downtime: of migration 1 (web montreal → sanjose) is unknown: no ticks"}},
		{"vm downtime of a guest at rest", "vm_downtime: {guest: db, below: 50ms}", nil,
			[]string{"vm_downtime: guest db made no migration that has one, expected below 50ms"}},
		{"network downtime", "network_downtime: {guest: web, below: 98.1ms}", nil, nil},
		{"network downtime over", "network_downtime: {guest: web, below: 60ms}", nil, []string{
			"network_downtime: of migration 1 (web montreal → sanjose) is 60ms, expected below 60ms",
			"network_downtime: of migration 2 (web sanjose → dublin) is 98ms, expected below 60ms"}},
		{"migration time", "migration_time: {guest: web, below: 10s}", nil, nil},
		{"migration time over", "migration_time: {guest: web, below: 7s}", nil,
			[]string{"migration_time: of migration 2 (web sanjose → dublin) is 9.06s, expected below 7s"}},
		{"dropped", "dropped_packets: 0", nil, nil},
		{"dropped some", "dropped_packets: 0", func(r *Report) { r.Migrations[0].DroppedPackets = new(int64(7)) },
			[]string{"dropped_packets: of migration 1 (web montreal → sanjose) is 7, expected at most 0"}},
		{"dropped fewer", "dropped_packets: {below: 8}", func(r *Report) { r.Migrations[0].DroppedPackets = new(int64(7)) }, nil},
		{"dropped as many", "dropped_packets: {below: 7}", func(r *Report) { r.Migrations[0].DroppedPackets = new(int64(7)) },
			[]string{"dropped_packets: of migration 1 (web montreal → sanjose) is 7, expected at most 6"}},
		{"dropped unknown", "dropped_packets: 0", func(r *Report) { r.Migrations[0].DroppedPackets = nil },
			[]string{"dropped_packets: of migration 1 (web montreal → sanjose) is unknown: no reason was given"}},
		{"dropped no more than may be", "dropped_packets: {below: 8}", func(r *Report) {
			r.Migrations[0].DroppedPackets, r.Migrations[0].DroppedAtMost = nil, new(int64(7))
		}, nil},
		{"dropped a bound that is more, in one that was undone", "dropped_packets: 0", func(r *Report) {
			m := &r.Migrations[0]
			m.Outcome, m.DroppedPackets, m.DroppedAtMost, m.WhyNull = Aborted, nil, new(int64(7)), map[string]string{"dropped_packets": "7 at most: the guest is gone"}
		}, []string{"dropped_packets: of migration 1 (web montreal → sanjose) is unknown: 7 at most: the guest is gone"}},
		{"dropped never counted", "dropped_packets: 0", func(r *Report) { r.Migrations = nil },
			[]string{"dropped_packets: no migration has a count, expected at most 0"}},
		{"dropped never counted, by one that failed", "dropped_packets: 0", func(r *Report) {
			r.Migrations = r.Migrations[:1]
			m := &r.Migrations[0]
			m.Outcome, m.DroppedPackets, m.WhyNull = Failed, nil, map[string]string{"dropped_packets": "the guest is gone"}
		}, []string{"dropped_packets: no migration has a count, expected at most 0: of migration 1 (web montreal → sanjose) it is unknown: the guest is gone"}},
		{"a time of one that was undone", "migration_time: {guest: web, below: 1s}", func(r *Report) {
			r.Migrations = r.Migrations[:1]
			m := &r.Migrations[0]
			m.Outcome, m.MigrationS, m.WhyNull = Aborted, nil, map[string]string{"migration_s": "it was aborted"}
		}, []string{"migration_time: guest web made no migration that has one, expected below 1s: of migration 1 (web montreal → sanjose) it is unknown: it was aborted"}},
		{"leftovers", "leftovers: none", nil, nil},
		{"something is left", "leftovers: none", func(r *Report) { r.Leftovers = []string{"namespace x", "tap y"} },
			[]string{"leftovers: 2, expected none: namespace x, tap y"}},
		{"timeout", "", func(r *Report) { r.TimedOut = true }, []string{"the run met its timeout of 10m0s"}},
		{"trigger", "", func(r *Report) { r.Unreached = []string{"abort web at web seed"} }, []string{"never reached: abort web at web seed"}},
		{"trouble", "", func(r *Report) { r.Troubles = []string{"exec in web: exit code 1"} }, []string{"exec in web: exit code 1"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			var s *scenario.Scenario
			if c.expect == "" {
				s = plan(t)
			} else {
				s = plan(t, c.expect)
			}
			r := sample()
			if c.change != nil {
				c.change(r)
			}
			if got := Check(s, r); !slices.Equal(got, c.unmet) {
				t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(c.unmet, "\n"))
			}
		})
	}
}

// TestLostDatagrams: one that is lost on its way, or by a guest that does not keep up, is no lost connection; one that
// came twice or broken is.
func TestLostDatagrams(t *testing.T) {
	for _, c := range []struct {
		lost, repeated, corrupt int64
		unmet                   []string
	}{
		{lost: 1900},
		{corrupt: 1, unmet: []string{"connections: corrupt of traffic ticks is 1, expected 0"}},
		{repeated: 2, unmet: []string{"connections: records_repeated of traffic ticks is 2, expected 0"}},
	} {
		r := sample()
		r.Traffic[0].Kind, r.Traffic[0].RecordsLost, r.Traffic[0].RecordsRepeated, r.Traffic[0].Corrupt = "udp", &c.lost, &c.repeated, &c.corrupt
		if unmet := Check(plan(t, "connections: survive"), r); !slices.Equal(unmet, c.unmet) {
			t.Errorf("%d lost, %d repeated, %d corrupt: %q", c.lost, c.repeated, c.corrupt, unmet)
		}
	}
}

// TestMovedButThoseThatCannot: connections of clients that cannot follow may stay on the tunnel,
// others in their place may not.
func TestMovedButThoseThatCannot(t *testing.T) {
	for _, client := range []string{"mptcp: off", "add_addr_accepted: 0"} {
		s := plan(t, "connections: moved")
		old, err := scenario.Parse("demo.yaml", []byte(`
name: demo
sites: [{name: montreal, guest_net: {v4: 10.1.1.0/24}, uplinks: [{name: public}]}]
clients: [{name: old, `+client+`}]
guests: [{name: web, site: montreal}, {name: db, site: montreal}]
traffic:
  - {name: plain, client: old, guest: web, kind: ticks, connections: 2}
  - {name: datagrams, client: old, guest: web, kind: udp}
  - {name: another, client: old, guest: db, kind: ticks}
`))
		if err != nil {
			t.Fatal(err)
		}
		s.Clients, s.Traffic = append(s.Clients, old.Clients...), append(s.Traffic, old.Traffic...)
		r := sample()
		for i := range r.Migrations {
			r.Migrations[i].Connections = &Connections{Total: 6, Moved: 4, Tunnelled: 2, Unable: 2}
		}
		if lines := Check(s, r); len(lines) > 0 {
			t.Errorf("%s: %q", client, lines)
		}
		r.Migrations[0].Connections = &Connections{Total: 6, Moved: 3, Tunnelled: 3, Unable: 2}
		want := []string{"connections: migration 1 (web montreal → sanjose) moved 3 of 6, expected 4 (those of plain cannot)"}
		if lines := Check(s, r); !slices.Equal(lines, want) {
			t.Errorf("%s: %q, want %q", client, lines, want)
		}
		// Those that cannot follow were not there yet: they stand for no other.
		r.Migrations[0].Connections = &Connections{Total: 1, Tunnelled: 1}
		want = []string{"connections: migration 1 (web montreal → sanjose) moved 0 of 1, expected all"}
		if lines := Check(s, r); !slices.Equal(lines, want) {
			t.Errorf("%s: %q, want %q", client, lines, want)
		}
	}
}
