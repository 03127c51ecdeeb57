package agent

import (
	"errors"
	"strings"
	"testing"
	"time"

	"godwit/agent/agenttest"
	"godwit/agent/care"
	"godwit/agent/config"
	"godwit/agent/guests"
	"godwit/agent/record"
	"godwit/migration"
	"godwit/vm"
)

// refusal checks that err is a usage problem of one line that has all of words.
func refusal(t *testing.T, err error, words ...string) {
	t.Helper()
	var problem *migration.Problem
	if !errors.As(err, &problem) || problem.Code != migration.CodeUsage {
		t.Fatalf("%v: want a usage problem", err)
	}
	for _, w := range words {
		if !strings.Contains(problem.Text, w) {
			t.Errorf("%q: want %q in it", problem.Text, w)
		}
	}
	if strings.ContainsAny(problem.Text, "\n") || strings.Contains(problem.Text, "%!") {
		t.Errorf("%q: want one line of words", problem.Text)
	}
}

// TestAutoIsTold: what `auto` became is in the report, also of a guest that nobody asks, as it keeps its address.
func TestAutoIsTold(t *testing.T) {
	plan := migration.Plan{Guest: "web", Mode: "precopy", Transfer: "auto", Network: "tunnel"}
	m := &outgoing{guest: guests.New(care.Held{}, nil), plan: plan, work: &sourceWork{facts: vm.Facts{Hold: vm.HoldAck}}, rec: record.New("paris", plan, time.Now())}
	err := m.checkGuest(t.Context())
	if rep := m.rec.Snapshot(); err != nil || rep.Transfer != "lanes" || rep.Mode != "precopy" || rep.Network != "tunnel" {
		t.Errorf("%s, %s, %s, %v; want precopy, lanes, tunnel", rep.Mode, rep.Transfer, rep.Network, err)
	}
}

// TestAutoOfAnotherUsersQEMU: one that cannot open what the agent names sends by one stream, where our own data path
// does not take its.
func TestAutoOfAnotherUsersQEMU(t *testing.T) {
	for asked, want := range map[string]string{"auto": "qemu-tcp", "lanes": "lanes", "qemu-multifd": ""} {
		plan := migration.Plan{Guest: "web", Mode: "precopy", Transfer: asked, Network: "tunnel"}
		m := &outgoing{guest: guests.New(care.Held{}, nil), plan: plan, rec: record.New("paris", plan, time.Now())}
		m.work = &sourceWork{facts: vm.Facts{Hold: vm.HoldLowBandwidth, Apart: true}}
		err := m.checkGuest(t.Context())
		if want == "" {
			agenttest.Refused(t, asked, err, migration.CodeHypervisor, "migrate guest web: its QEMU is not the agent's", "use --transfer auto or qemu-tcp")
			continue
		}
		if got := m.rec.Snapshot().Transfer; err != nil || got != want {
			t.Errorf("%s: %s, %v; want %s", asked, got, err, want)
		}
	}
}

func TestAgentOfADescription(t *testing.T) {
	d := config.Description{Name: "web", Memory: 1 << 30, NICs: []config.NIC{{MAC: "52:54:00:00:00:0a"}}, Agent: "ssh"}
	refusal(t, d.Check(), `agent "ssh" is unknown; allowed: godwit, qga`)
	for _, agent := range []string{"", "godwit", "qga"} {
		d.Agent = agent
		if err := d.Check(); err != nil {
			t.Errorf("agent %q: %v", agent, err)
		}
	}
}

// TestStartedAgainIsTold: a guest that was adopted, whose QEMU a unit runs, may be started again as that ends; one that
// an agent started is not.
func TestStartedAgainIsTold(t *testing.T) {
	for name, c := range map[string]struct {
		qmp, unit string
		notes     int
	}{
		"a service's": {"/run/web/qmp.sock", "web.service", 1}, "a person's": {"/run/web/qmp.sock", "", 0}, "the agent's own": {"", "godwit.service", 0},
	} {
		plan := migration.Plan{Guest: "web", Mode: "precopy", Transfer: "lanes", Network: "tunnel"}
		held := care.Held{Description: config.Description{Name: "web", QMP: c.qmp}}
		m := &outgoing{guest: guests.New(held, nil), plan: plan, work: &sourceWork{facts: vm.Facts{Unit: c.unit}}, rec: record.New("paris", plan, time.Now())}
		if err := m.checkGuest(t.Context()); err != nil {
			t.Fatal(err)
		}
		notes := m.rec.Snapshot().Notes
		if len(notes) != c.notes || c.notes > 0 && !strings.HasPrefix(notes[0], c.unit+" runs its QEMU") {
			t.Errorf("%s: %q", name, notes)
		}
	}
}
