package lab

import (
	"net/http"
	"testing"

	"godwit/lab/scenario"
)

// TestEvacuationOfASiteWithin: a guest that goes from one host of a site to another before its turn is at the site
// still, and leaves it from there.
func TestEvacuationOfASiteWithin(t *testing.T) {
	for at, moves := range map[string]int{"a-1": 1, "a-2": 1, "b": 0} {
		r := aRun()
		r.w.scenario.Sites = []scenario.Site{{Name: "a", Hosts: 2}, {Name: "b", Hosts: 1}}
		for _, host := range r.w.scenario.Hosts("a") {
			mux := http.NewServeMux()
			mux.HandleFunc("GET /v1/host", func(w http.ResponseWriter, _ *http.Request) {
				if host != at {
					t.Errorf("at %s: %s is asked about it", at, host)
				}
				w.Write([]byte(`{"host":"` + host + `","site":"a","neighbours":[{"host":"b","site":"b"}]}`)) //nolint:errcheck // the client tells
			})
			mux.HandleFunc("POST /v1/migrations", func(w http.ResponseWriter, _ *http.Request) {
				w.WriteHeader(http.StatusConflict)
				w.Write([]byte(`{"code":"busy","text":"it stays"}`)) //nolint:errcheck // the client tells
			})
			r.w.agents[host] = anAgent(t, host, mux)
		}
		r.w.agents["b"] = anAgent(t, "b", http.NewServeMux())
		r.w.where["web"] = "a-1"
		_, done := r.turn("web") // a migration that goes on
		r.evacuate(t.Context(), &scenario.Step{Evacuate: &scenario.Evacuate{Host: "a", To: "b"}})
		r.w.moved("web", at)
		done()
		r.wg.Wait()
		if len(r.moves) != moves || len(r.troubles) != 0 {
			t.Errorf("at %s: %d migrations, troubles %q", at, len(r.moves), r.troubles)
		}
		for _, m := range r.moves {
			if m.from != at || m.to != "b" {
				t.Errorf("from %s to %s, and it is at %s", m.from, m.to, at)
			}
		}
	}
}
