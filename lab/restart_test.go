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
	"time"

	"godwit/agent/api"
	"godwit/internal/need"
	"godwit/lab/scenario"
	"godwit/lab/topo"
	"godwit/netstate/netns"
)

// anAgentWith is an agent of a host that has these guests, and notes what it is asked to do.
func anAgentWith(t *testing.T, host string, asked *askedOf, guests ...api.GuestInfo) *hostAgent {
	t.Helper()
	return anAgent(t, host, answersWith(host, asked, guests...))
}

// answersWith is what that agent answers.
func answersWith(host string, asked *askedOf, guests ...api.GuestInfo) *http.ServeMux {
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
	return mux
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
		change func(a, b *hostAgent)
		asked  string
		wrong  string
	}{
		{"nobody has it", nil, nil, nil, "start on a", ""},
		{"its agent has it still", []api.GuestInfo{dead}, nil, nil, "stop web on a, start on a", ""},
		{"it runs elsewhere", nil, []api.GuestInfo{alive}, nil, "", ""},
		{"it runs elsewhere, and is dead here", []api.GuestInfo{dead}, []api.GuestInfo{alive}, nil, "", ""},
		{"a host is silent", nil, nil, func(_, b *hostAgent) { b.client = nobody(t) }, "start on a", ""},
		{"an agent elsewhere is gone for good", nil, nil, func(_, b *hostAgent) { b.client, b.done = nobody(t), gone() }, "start on a", ""},
		{"its own host is silent", nil, nil, func(a, _ *hostAgent) { a.client = nobody(t) }, "", "host a"},
		{"its own host's agent is gone for good", nil, nil, func(a, _ *hostAgent) { a.client, a.done = nobody(t), gone() }, "", "host a"},
	} {
		asked := &askedOf{}
		r := aRun()
		a, b := anAgentWith(t, "a", asked, c.a...), anAgentWith(t, "b", asked, c.b...)
		if c.change != nil {
			c.change(a, b)
		}
		r.w.agents["a"], r.w.agents["b"] = a, b
		err := r.bootAgain(t.Context(), &scenario.Kill{QEMU: "web"}, r.w.agents["a"])
		if (err == nil) != (c.wrong == "") || err != nil && !strings.Contains(err.Error(), c.wrong) {
			t.Errorf("%s: %v, want %q", c.name, err, c.wrong)
		}
		if got := strings.Join(asked.words, ", "); got != c.asked {
			t.Errorf("%s: asked to %q, want %q", c.name, got, c.asked)
		}
	}
}

// nobody is the client of an agent that is not there.
func nobody(t *testing.T) *api.Client { return api.NewClient(filepath.Join(t.TempDir(), "none.sock")) }

// gone is done of a process that has ended.
func gone() chan struct{} {
	done := make(chan struct{})
	close(done)
	return done
}

// TestBootAgainBesideAnAgentThatComesUp: what an agent does not say that is being started again, it says when it is
// there: on the guest's own host, or elsewhere, where it may have ended what a migration left.
func TestBootAgainBesideAnAgentThatComesUp(t *testing.T) {
	for name, comesUp := range map[string]func(*hostAgent){
		"it is to start":     func(h *hostAgent) { h.done, h.awaiting = gone(), true },
		"it was started":     func(h *hostAgent) { h.launched = time.Now() },
		"it is being killed": func(h *hostAgent) { h.done = make(chan struct{}); h.killed = h.done },
	} {
		for _, host := range []string{"a", "b"} {
			asked := &askedOf{}
			r := aRun()
			r.w.agents["a"], r.w.agents["b"] = anAgentWith(t, "a", asked), anAgentWith(t, "b", asked)
			mux, tries := http.NewServeMux(), 0
			mux.HandleFunc("/", func(w http.ResponseWriter, q *http.Request) {
				if tries++; tries < 3 {
					panic(http.ErrAbortHandler)
				}
				answersWith(host, asked).ServeHTTP(w, q)
			})
			r.w.agents[host] = anAgent(t, host, mux)
			comesUp(r.w.agents[host])
			err := r.bootAgain(t.Context(), &scenario.Kill{QEMU: "web"}, r.w.agents["a"])
			if got := strings.Join(asked.words, ", "); err != nil || got != "start on a" {
				t.Errorf("%s on %s: %v, asked to %q", name, host, err, got)
			}
		}
	}
}

// TestNoBootWhereAQEMUIs: where an agent is gone, and its host has a QEMU of the guest, the guest may run there, or not.
func TestNoBootWhereAQEMUIs(t *testing.T) {
	need.Root(t)
	namespace := "t-boot-" + newID()
	if err := netns.Create(namespace); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { netns.Delete(namespace) }) //nolint:errcheck // of a test
	namedProcess(t, namespace, "web")
	asked := &askedOf{}
	r := aRun()
	r.w.agents["a"] = anAgentWith(t, "a", asked)
	r.w.agents["b"] = &hostAgent{host: topo.Host{Name: "b", Namespace: namespace}, client: nobody(t), done: gone()}
	if err := r.bootAgain(t.Context(), &scenario.Kill{QEMU: "web"}, r.w.agents["a"]); err == nil || len(asked.words) != 0 {
		t.Errorf("%v, asked to %q", err, asked.words)
	}
}
