package lab

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"godwit/agent/api"
	"godwit/agent/record"
	"godwit/internal/need"
	"godwit/lab/image"
	"godwit/lab/scenario"
	"godwit/lab/traffic"
	"godwit/migration"
)

const twoSites = `name: adopt
sites:
  - {name: montreal, guest_net: {v4: 10.1.1.0/24}, uplinks: [{name: public, rate: 200mbit, delay: 5ms}]}
  - {name: sanjose, guest_net: {v4: 10.2.1.0/24}, uplinks: [{name: public, rate: 200mbit, delay: 5ms}]}
clients:
  - {name: phone, at: sanjose}
`

// guestsImage has a test find what tiny guests boot, where nobody says so what `make build` made,
// and gives it the machine to itself.
func guestsImage(t *testing.T) {
	t.Helper()
	need.QEMU(t)
	if os.Getenv(image.Variable) == "" {
		folder, err := filepath.Abs("../build/guest")
		if err != nil {
			t.Fatal(err)
		}
		need.File(t, filepath.Join(folder, image.InitrdFile))
		t.Setenv(image.Variable, folder)
	}
	need.Lab(t)
}

// prepare makes w the world of a scenario, with nothing built yet. What is built is taken
// down with t, which fails if something is left; failed is called before, if t has failed.
func (w *world) prepare(t *testing.T, text string, failed func()) {
	t.Helper()
	guestsImage(t)
	s, err := scenario.Parse(t.Name(), []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	id, dir, err := claim(newID)
	if err != nil {
		t.Fatal(err)
	}
	w.id, w.dir, w.out = id, dir, os.Getenv("GODWIT_TEST_OUT")
	w.scenario, w.log = s, slog.New(slog.DiscardHandler)
	w.agents, w.where = map[string]*hostAgent{}, map[string]string{}
	w.clients, w.probers = map[string]*traffic.Client{}, map[string]*traffic.Prober{}
	stopReaper, err := guard(id, w.dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			failed()
		}
		for _, left := range w.close(stopReaper) {
			t.Error("left behind: " + left)
		}
	})
}

// buildWorld makes the network, agents and clients of a scenario.
func buildWorld(t *testing.T, text string) *world {
	t.Helper()
	w := &world{}
	w.prepare(t, text, func() {
		for name, a := range w.agents {
			log, _ := os.ReadFile(a.logPath())
			t.Logf("agent %s:\n%s", name, log)
		}
	})
	if err := w.build(t.Context(), func(line string) { t.Log(line) }); err != nil {
		t.Fatal(err)
	}
	return w
}

// only is the one guest that a host has.
func only(t *testing.T, a *hostAgent) api.GuestInfo {
	t.Helper()
	info, err := a.client.Host(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if len(info.Guests) != 1 {
		t.Fatalf("host %s has %d guests, want one: %+v", info.Host, len(info.Guests), info.Guests)
	}
	if g := info.Guests[0]; g.Status != "running" {
		t.Fatalf("guest %s on %s is %s", g.Name, info.Host, g.Status)
	}
	return info.Guests[0]
}

// restart kills an agent and starts it again.
func restart(t *testing.T, a *hostAgent) {
	t.Helper()
	if err := a.kill(); err != nil {
		t.Fatal(err)
	}
	if err := a.start(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// migrate moves web and waits for the outcome.
func migrate(t *testing.T, from *hostAgent, to string) record.Report {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 90*time.Second)
	defer cancel()
	id, err := from.client.Migrate(ctx, migration.Request{Guest: "web", To: to})
	if err != nil {
		t.Fatal(err)
	}
	for after, over := 0, false; !over; {
		part, err := from.client.Events(ctx, id, after)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range part.Events {
			after = e.N
		}
		over = part.Over
	}
	rep, err := from.client.Report(ctx, id)
	if err != nil {
		t.Fatal(err)
	}
	return rep
}
