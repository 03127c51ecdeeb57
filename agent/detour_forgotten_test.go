package agent

import (
	"context"
	"encoding/json"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"path/filepath"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"godwit/agent/agenttest"
	"godwit/agent/api"
	"godwit/agent/care"
	"godwit/agent/config"
	"godwit/agent/guests"
	"godwit/agent/hook"
	"godwit/agent/limits"
	"godwit/agent/peer"
	"godwit/agent/talk"
	"godwit/migration"
)

// TestForgetAway: what leads to a guest that left ends by a person's word where its host does not answer, is not of the
// fleet any more, or has no guest of that name; where it has, or may have, nothing changes.
func TestForgetAway(t *testing.T) {
	before := limits.Presence
	defer func() { limits.Presence = before }()
	limits.Presence.For = time.Second
	has := func(yes bool) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			if r.FormValue("guest") != "web" {
				t.Errorf("asked about %q", r.FormValue("guest"))
			}
			peer.Answer(w, talk.Presence{Has: &yes}, nil)
		}
	}
	for name, c := range map[string]struct {
		to     string
		answer http.HandlerFunc
		word   string
	}{
		"none of that name there": {"oslo", has(false), ""},
		"it is there":             {"oslo", has(true), "led to oslo, which has it"},
		"it went on from there": {"oslo", func(w http.ResponseWriter, _ *http.Request) {
			yes := true
			peer.Answer(w, talk.Presence{Has: &yes, LedOn: true}, nil)
		}, "which leads what comes for it on to another; if it runs nowhere any more, say so there: `godwit guest forget web --away` on oslo"},
		"of an older release":         {"oslo", func(w http.ResponseWriter, _ *http.Request) { peer.Answer(w, talk.Presence{Guests: 1}, nil) }, "does not say whether"},
		"it refuses":                  {"oslo", func(w http.ResponseWriter, _ *http.Request) { peer.Answer(w, nil, talk.NotBelieved("not you")) }, "not you"},
		"it breaks off":               {"oslo", func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, ""},
		"it is not of the fleet more": {"bergen", nil, ""},
	} {
		a := between(t)
		a.hooks = hook.New(hook.Config{Dir: t.TempDir()}, a.log, func(hook.Call, string) {}, func(migration.EventName, hook.Result) {})
		defer a.hooks.Close()
		if a.links = map[string]*peer.Link{}; c.answer != nil {
			a.links[c.to] = linked(t, "rome", c.to, c.answer)
		}
		sentAway(a, "10.2.1.40", c.to, "52:54:00:00:00:01")
		r := callFrom(t, "", "", nil)
		r.SetPathValue("name", "web")
		said, err := a.apiForgetAway(r)
		left := len(a.detours.List("web"))
		if c.word != "" {
			agenttest.Refused(t, name, err, migration.CodeBusy, c.word)
			if left != 1 {
				t.Errorf("%s: it was refused, and %d of 1 detours are left", name, left)
			}
			continue
		}
		gone, ok := said.(api.Forgotten)
		if err != nil || left != 0 || !ok || !slices.Equal(gone.Addresses, []netip.Addr{netip.MustParseAddr("10.2.1.40")}) {
			t.Errorf("%s: said %+v, %v, and %d detours are left", name, said, err, left)
		}
		_, err = a.apiForgetAway(r)
		agenttest.Refused(t, name+", again", err, migration.CodeUnknownGuest, "leads nothing after a guest of that name")
	}
}

// TestForgetAwayIsSureOfSilence: a host that was only not heard, as a path was cut just now or nobody waits any more,
// does not count as gone.
func TestForgetAwayIsSureOfSilence(t *testing.T) {
	before := limits.Presence
	defer func() { limits.Presence = before }()
	limits.Presence.For = time.Second
	for _, calledOff := range []bool{false, true} {
		a := between(t)
		r := callFrom(t, "", "", nil)
		ctx, callOff := context.WithCancel(t.Context())
		defer callOff()
		r = r.WithContext(ctx)
		r.SetPathValue("name", "web")
		asked := atomic.Int32{}
		a.links = map[string]*peer.Link{"oslo": linked(t, "rome", "oslo", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if calledOff {
				callOff()
			}
			if asked.Add(1) == 1 || calledOff {
				<-r.Context().Done()
				return
			}
			yes := true
			peer.Answer(w, talk.Presence{Has: &yes}, nil)
		}))}
		sentAway(a, "10.2.1.40", "oslo", "52:54:00:00:00:01")
		_, err := a.apiForgetAway(r)
		agenttest.Refused(t, "oslo", err, migration.CodeBusy, map[bool]string{false: "which has it", true: "called off"}[calledOff])
		if len(a.detours.List("web")) != 1 {
			t.Error("what leads to it has ended")
		}
	}
}

// TestForgetAwayOfOneThatIsHere: it is for none that is under care here, nor for one that comes.
func TestForgetAwayOfOneThatIsHere(t *testing.T) {
	r := callFrom(t, "", "", nil)
	r.SetPathValue("name", "web")
	a := between(t)
	sentAway(a, "10.2.1.40", "bergen", "52:54:00:00:00:01")
	a.incoming["m-00000009"] = &incoming{plan: migration.Plan{ID: "m-00000009", Guest: "web"}}
	_, err := a.apiForgetAway(r)
	agenttest.Refused(t, "it comes", err, migration.CodeBusy, "brings it to rome")
	clear(a.incoming)
	a.guests.NoteSilent(care.Held{Description: config.Description{Name: "web"}})
	_, err = a.apiForgetAway(r)
	agenttest.Refused(t, "its QEMU does not answer", err, migration.CodeBusy, "it may be on this host")
	a.guests.Answers("web")
	starts := guests.New(care.Held{Description: config.Description{Name: "web"}}, nil)
	a.guests.ExpectAgain(starts)
	_, err = a.apiForgetAway(r)
	agenttest.Refused(t, "it is being started", err, migration.CodeBusy, "it may be on this host")
	a.guests.Settled(starts)
	underCare(t, a.guests, "web", guests.New(care.Held{}, nil))
	_, err = a.apiForgetAway(r)
	agenttest.Refused(t, "it is here", err, migration.CodeUsage, "it is under care on this host")
	if len(a.detours.List("web")) != 1 {
		t.Error("what leads to it has ended")
	}
}

// TestMayBeHere: a host says of a guest that it may be here where it is under care, is awaited, or does not answer yet.
func TestMayBeHere(t *testing.T) {
	for name, c := range map[string]struct {
		here func(*Agent)
		want bool
	}{
		"no":           {func(*Agent) {}, false},
		"another":      {func(a *Agent) { underCare(t, a.guests, "db", guests.New(care.Held{}, nil)) }, false},
		"under care":   {func(a *Agent) { underCare(t, a.guests, "web", guests.New(care.Held{}, nil)) }, true},
		"it is silent": {func(a *Agent) { a.guests.NoteSilent(care.Held{Description: config.Description{Name: "web"}}) }, true},
		"it comes":     {func(a *Agent) { a.incoming["m-1"] = &incoming{plan: migration.Plan{Guest: "web"}} }, true},
		"it is started": {func(a *Agent) {
			a.guests.ExpectAgain(guests.New(care.Held{Description: config.Description{Name: "web"}}, nil))
		}, true},
	} {
		a := between(t)
		c.here(a)
		if got := a.mayBeHere("web"); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
	for guest, want := range map[string]string{"": "null", "web": "true", "db": "false"} {
		a := between(t)
		underCare(t, a.guests, "web", guests.New(care.Held{}, nil))
		r := callFrom(t, "paris", "", nil)
		r.Form = map[string][]string{"guest": {guest}}
		said, err := a.peerPresence(r)
		p, _ := said.(talk.Presence)
		if has, _ := json.Marshal(p.Has); err != nil || string(has) != want || p.Guests != 1 {
			t.Errorf("asked about %q: %+v, %v, want %s", guest, said, err, want)
		}
	}
}

// TestLedOnFrom: a host that has no guest of that name, but leads what comes for it on, says so: the guest may run
// beyond. What leads to the very host that asks is no such thing: each of the two would wait for the other's end.
func TestLedOnFrom(t *testing.T) {
	for caller, want := range map[string]bool{"paris": true, "oslo": false} {
		a := between(t)
		sentAway(a, "10.2.1.40", "oslo", "52:54:00:00:00:01")
		r := callFrom(t, caller, "", nil)
		r.Form = map[string][]string{"guest": {"web"}}
		said, err := a.peerPresence(r)
		if p, _ := said.(talk.Presence); err != nil || p.LedOn != want || p.Has == nil || *p.Has != want {
			t.Errorf("asked by %s: %+v, %v", caller, said, err)
		}
	}
}

// TestForgetAwayOfADisbelievedHost: a host whose certificate is not believed, as where its year is over, has not gone:
// its guests run.
func TestForgetAwayOfADisbelievedHost(t *testing.T) {
	dir := t.TempDir()
	ca, err := peer.NewFleetCA(dir, time.Now())
	if err == nil {
		err = ca.Issue("rome", time.Now())
	}
	if err != nil {
		t.Fatal(err)
	}
	id, err := peer.LoadIdentity(filepath.Join(dir, "ca.pem"), filepath.Join(dir, "rome.pem"), filepath.Join(dir, "rome.key"))
	if err != nil {
		t.Fatal(err)
	}
	other := httptest.NewUnstartedServer(http.NotFoundHandler())
	other.Config.ErrorLog = log.New(io.Discard, "", 0)
	other.StartTLS()
	defer other.Close()
	at := netip.MustParseAddrPort(other.Listener.Addr().String())
	link := peer.NewLink(id, "oslo", at.Port(), []peer.Path{{Name: "lo", Local: loopback, Remote: loopback}})
	defer link.Close()
	a := between(t)
	a.links = map[string]*peer.Link{"oslo": link}
	sentAway(a, "10.2.1.40", "oslo", "52:54:00:00:00:01")
	r := callFrom(t, "", "", nil)
	r.SetPathValue("name", "web")
	_, err = a.apiForgetAway(r)
	agenttest.Refused(t, "it has another certificate", err, migration.CodeBusy, "led to oslo, which is there: ")
	if len(a.detours.List("web")) != 1 {
		t.Error("what leads to its guest has ended")
	}
}
