package lab

import (
	"strings"
	"testing"
	"time"

	"godwit/agent/config"
	"godwit/migration"
)

// TestHomeToASibling: a guest that kept its address where it was, and comes to another host of its home's site by network auto, keeps it
// there: its home gives it back, nothing of what was open ends, and no tunnel is left. So it is when it has left from there.
func TestHomeToASibling(t *testing.T) {
	p := newTrial(t, besideHomeWorld, func(string, *config.Config) {})
	p.listens("phone")
	flows := p.plainFlows("plain", map[string]string{"web": "montreal-1"})
	p.lives("at home", flows)
	away := func(from string) {
		id, err := p.w.agents[from].client.Migrate(p.Context(), migration.Request{Guest: "web", To: "sanjose", Network: "tunnel"})
		p.must(err)
		if rep := p.endsOn(from, id, 90*time.Second); rep.Outcome != migration.Completed {
			p.Fatalf("from %s: %s, %v", from, rep.Outcome, rep.Problem)
		}
		p.homes("web", "sanjose", from)
		p.lives("away", flows)
	}
	back := func(to string) {
		notes := strings.Join(p.moves(to, map[string]string{"web": "sanjose"}), "\n")
		if !strings.Contains(notes, "at home in montreal (network tunnel)") || strings.Contains(notes, "not given back") {
			p.Errorf("to %s: %s", to, notes)
		}
		p.homes("web", to, to)
		for _, host := range []string{"montreal-1", "montreal-2"} {
			if got := p.standsFor(host); len(got) > 0 {
				p.Errorf("%s stands for %v", host, got)
			}
		}
		p.forgetNeighbours()
		p.lives("at home on "+to, flows)
	}
	away("montreal-1")
	back("montreal-2")
	away("montreal-2")
	back("montreal-1")
	p.lostNothing(flows)
}
