package lab

import (
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"godwit/agent/api"
	"godwit/lab/scenario"
	"godwit/lab/topo"
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
		_, done := r.queued("web") // a migration that goes on
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

// TestEvacuationBesideADeadAgent: a guest that went to another host of its site, whose agent does not answer, keeps no
// other back, whose migration begins while that agent is waited for; and is told of.
func TestEvacuationBesideADeadAgent(t *testing.T) {
	r := aRun()
	r.w.scenario.Sites = []scenario.Site{{Name: "a", Hosts: 2}, {Name: "b", Hosts: 1}}
	r.w.scenario.Guests = append(r.w.scenario.Guests, scenario.Guest{Name: "db", Site: "a"})
	asked := make(chan struct{})
	healthy, dead := http.NewServeMux(), http.NewServeMux()
	healthy.HandleFunc("GET /v1/host", func(w http.ResponseWriter, _ *http.Request) {
		w.Write([]byte(`{"host":"a-2","site":"a","neighbours":[{"host":"b","site":"b"}]}`)) //nolint:errcheck // the client tells
	})
	healthy.HandleFunc("POST /v1/migrations", func(w http.ResponseWriter, _ *http.Request) {
		close(asked)
		w.WriteHeader(http.StatusConflict)
		w.Write([]byte(`{"code":"busy","text":"it stays"}`)) //nolint:errcheck // the client tells
	})
	dead.HandleFunc("GET /v1/host", func(w http.ResponseWriter, _ *http.Request) {
		select {
		case <-asked:
		case <-time.After(10 * time.Second): // where none is asked for
			t.Error("no guest moves before it answers")
		}
		w.WriteHeader(http.StatusInternalServerError)
		w.Write([]byte(`{"code":"peer","text":"its agent is gone"}`)) //nolint:errcheck // the client tells
	})
	r.w.agents["a-1"], r.w.agents["a-2"], r.w.agents["b"] = anAgent(t, "a-1", dead), anAgent(t, "a-2", healthy), anAgent(t, "b", http.NewServeMux())
	r.w.where["web"], r.w.where["db"] = "a-1", "a-1"
	_, done := r.queued("web")
	r.evacuate(t.Context(), &scenario.Step{Evacuate: &scenario.Evacuate{Host: "a", To: "b"}})
	r.w.moved("web", "a-2")
	done()
	r.wg.Wait()
	if len(r.moves) != 1 || r.moves[0].guest != "web" || r.moves[0].from != "a-2" {
		t.Errorf("%d migrations", len(r.moves))
	}
	if len(r.troubles) != 1 || !strings.Contains(r.troubles[0], "guests on a-1 stay: ") {
		t.Errorf("troubles %q", r.troubles)
	}
}

// TestEvacuationBesideAGuestThatIsToBootAgain: it keeps no other back until it has booted, and leaves then.
func TestEvacuationBesideAGuestThatIsToBootAgain(t *testing.T) {
	none := filepath.Join(t.TempDir(), "none.sock")
	synctest.Test(t, func(t *testing.T) {
		r := aRun()
		r.w.scenario.Guests = append(r.w.scenario.Guests, scenario.Guest{Name: "db", Site: "a"})
		r.w.agents["a"] = &hostAgent{host: topo.Host{Name: "a"}, client: api.NewClient(none), done: gone()} // which has nobody to ask: that is told
		r.w.where["web"], r.w.where["db"] = "a", "a"
		left := func(want int) {
			t.Helper()
			r.mu.Lock()
			defer r.mu.Unlock()
			if len(r.troubles) != want || r.pending != 2-want {
				t.Errorf("%d guests are to come, troubles %q; want %d", r.pending, r.troubles, want)
			}
		}
		booted := r.toBoot("web", r.w.agents["a"])
		r.evacuate(t.Context(), &scenario.Step{Evacuate: &scenario.Evacuate{Host: "a", To: "a"}})
		time.Sleep(time.Minute)
		left(1)
		booted()
		r.wg.Wait()
		left(2)
	})
}
