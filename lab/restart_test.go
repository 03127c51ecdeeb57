package lab

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"godwit/agent/api"
	"godwit/lab/scenario"
)

// anAgentWith is an agent of a host that has these guests, and notes what it is asked to do.
func anAgentWith(t *testing.T, host string, asked *askedOf, guests ...api.GuestInfo) *hostAgent {
	t.Helper()
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/host", func(w http.ResponseWriter, _ *http.Request) {
		json.NewEncoder(w).Encode(api.HostInfo{Host: host, Guests: guests}) //nolint:errcheck // the client tells
	})
	mux.HandleFunc("POST /v1/guests", func(w http.ResponseWriter, _ *http.Request) {
		asked.note("start on " + host)
		fmt.Fprint(w, "{}")
	})
	mux.HandleFunc("DELETE /v1/guests/{name}", func(_ http.ResponseWriter, q *http.Request) {
		asked.note("stop " + q.PathValue("name") + " on " + host)
	})
	return anAgent(t, host, mux)
}

type askedOf struct {
	mu    sync.Mutex
	words []string
}

func (a *askedOf) note(word string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.words = append(a.words, word)
}

// A guest whose QEMU was killed is booted again where that was, unless a host has it, or may.
func TestBootAgain(t *testing.T) {
	ended := exec.Command("true")
	if err := ended.Run(); err != nil {
		t.Fatal(err)
	}
	dead := api.GuestInfo{Name: "web", PID: ended.Process.Pid}
	alive := api.GuestInfo{Name: "web", Status: "running", PID: 1}
	for _, c := range []struct {
		name   string
		a, b   []api.GuestInfo
		silent bool // b does not answer
		asked  string
		wrong  string
	}{
		{"nobody has it", nil, nil, false, "start on a", ""},
		{"its agent has it still", []api.GuestInfo{dead}, nil, false, "stop web on a, start on a", ""},
		{"it runs elsewhere", nil, []api.GuestInfo{alive}, false, "", ""},
		{"it runs elsewhere, and is dead here", []api.GuestInfo{dead}, []api.GuestInfo{alive}, false, "", ""},
		{"a host is silent", nil, nil, true, "", "host b"},
	} {
		asked := &askedOf{}
		r := aRun()
		r.w.agents["a"], r.w.agents["b"] = anAgentWith(t, "a", asked, c.a...), anAgentWith(t, "b", asked, c.b...)
		if c.silent {
			r.w.agents["b"].client = api.NewClient(filepath.Join(t.TempDir(), "none.sock"))
		}
		err := r.bootAgain(t.Context(), &scenario.Kill{QEMU: "web"}, r.w.agents["a"])
		if (err == nil) != (c.wrong == "") || err != nil && !strings.Contains(err.Error(), c.wrong) {
			t.Errorf("%s: %v, want %q", c.name, err, c.wrong)
		}
		if got := strings.Join(asked.words, ", "); got != c.asked {
			t.Errorf("%s: asked to %q, want %q", c.name, got, c.asked)
		}
	}
}
