package agent

import (
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"godwit/agent/agenttest"
	"godwit/agent/api"
	"godwit/agent/care"
	"godwit/agent/config"
	"godwit/agent/guests"
	"godwit/agent/limits"
	"godwit/agent/peer"
	"godwit/agent/record"
	"godwit/agent/talk"
	"godwit/migration"
)

func mustURL(t *testing.T, text string) *url.URL {
	t.Helper()
	u, err := url.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return u
}

// TestMayRunAgain: a guest that ended here is started again by itself only where every host says that it has none, and
// knows of no later right to it, and its disks are as it left them. What nobody knows a person may vouch for; what
// somebody knows, or is not there, not.
func TestMayRunAgain(t *testing.T) {
	presence, heard := limits.Presence, limits.Heard
	yes, no, at := true, false, time.Unix(1e9, 0)
	says := func(p talk.Presence) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { peer.Answer(w, p, nil) }
	}
	none := says(talk.Presence{Has: &no, Epoch: 3})
	silent := func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }
	nothing := func(*testing.T, *Agent, *guests.Guest) {}
	unheard := func(_ *testing.T, _ *Agent, g *guests.Guest) {
		g.Remember(func(h *care.Held) { h.Unheard = &care.Unheard{Migration: "m-00000001", From: "oslo"} })
	}
	courses := func(c talk.CourseAnswer) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			if strings.HasSuffix(r.URL.Path, "/course") {
				peer.Answer(w, c, nil)
				return
			}
			none(w, r)
		}
	}
	for name, c := range map[string]struct {
		oslo      http.HandlerFunc
		before    func(*testing.T, *Agent, *guests.Guest) // it is kept
		after     func(*testing.T, *Agent, *guests.Guest)
		word      string // "": it may
		vouchable bool
	}{
		"nobody has it":            {none, nothing, nothing, "", false},
		"oslo has it":              {says(talk.Presence{Has: &yes}), nothing, nothing, "oslo has a guest of that name", false},
		"it went on from oslo":     {says(talk.Presence{Has: &yes, LedOn: true}), nothing, nothing, "oslo leads what comes for it on", false},
		"oslo knows a later right": {says(talk.Presence{Has: &no, Epoch: 4}), nothing, nothing, "oslo knows of a later right to run one of that name, epoch 4", true},
		"it ended on oslo, too":    {says(talk.Presence{Has: &no, Ended: &at}), nothing, nothing, "ended on oslo, too, at 2001-09-09 01:46:40 UTC", true},
		"of an older release":      {says(talk.Presence{}), nothing, nothing, "of a release that does not say", true},
		"oslo does not answer":     {silent, nothing, nothing, "whether it is on oslo is not known", true},
		"its source has heard":     {courses(talk.CourseAnswer{Heard: true}), unheard, nothing, "", false},
		"its source has not heard": {courses(talk.CourseAnswer{Course: talk.CourseUnderWay}), unheard, nothing, "has not heard yet that the guest runs here", false},
		"its source took it back":  {courses(talk.CourseAnswer{Course: talk.CourseOver, Epoch: 4}), unheard, nothing, "it has taken it back", false},
		"its source says nothing":  {silent, unheard, nothing, "does not answer whether it has heard", true},
		"its disk was written to": {none, nothing, func(t *testing.T, _ *Agent, g *guests.Guest) {
			if err := os.WriteFile(g.Held().Description.Disks[0].Path, []byte("newer"), 0o600); err != nil {
				t.Fatal(err)
			}
		}, "is not as it left it", true},
		"its disk is gone": {none, nothing, func(t *testing.T, _ *Agent, g *guests.Guest) {
			if err := os.Remove(g.Held().Description.Disks[0].Path); err != nil {
				t.Fatal(err)
			}
		}, "its disk vda: ", false},
		"a later right is known here": {none, nothing, func(t *testing.T, a *Agent, _ *guests.Guest) {
			rep := record.Report{ID: "m-00000002", Guest: "web", From: "rome", To: "oslo", Epoch: 4, Outcome: migration.Completed}
			if err := a.records.Write(rep.ID+".json", func() record.Report { return rep }); err != nil {
				t.Fatal(err)
			}
		}, "this host knows of a later right", true},
		"it was here again meanwhile": {none, nothing, func(t *testing.T, a *Agent, g *guests.Guest) {
			if err := a.guests.KeepEnded(g, "powered off", time.Now().Add(time.Hour)); err != nil {
				t.Fatal(err)
			}
		}, "it was here again since", false},
	} {
		t.Run(name, func(t *testing.T) {
			a := startedAgain(t)
			for _, host := range []string{"paris", "rome2"} {
				a.links[host] = linked(t, "rome", host, none)
			}
			a.links["oslo"] = linked(t, "rome", "oslo", c.oslo)
			if strings.Contains(name, "says nothing") || strings.Contains(name, "does not answer") { // nor is anybody else asked
				defer func() { limits.Presence, limits.Heard = presence, heard }()
				limits.Presence.For, limits.Heard.For = 100*time.Millisecond, 100*time.Millisecond
				a.config.Peers = slices.DeleteFunc(a.config.Peers, func(n config.Neighbour) bool { return n.Host != "oslo" })
			}
			g := endedWeb(t, a)
			c.before(t, a, g)
			if err := a.guests.KeepEnded(g, "powered off", time.Now()); err != nil {
				t.Fatal(err)
			}
			e, err := a.guests.Ended("web")
			if err != nil {
				t.Fatal(err)
			}
			c.after(t, a, g)
			for _, fenced := range []bool{false, true} {
				err := a.mayRunAgain(t.Context(), e, fenced)
				if (err == nil) != (c.word == "" || fenced && c.vouchable) || err != nil && (!strings.Contains(err.Error(), c.word) || strings.Contains(err.Error(), "\n")) {
					t.Errorf("fenced %v: %v", fenced, err)
				}
				if err != nil && strings.Contains(err.Error(), "--fenced") != c.vouchable {
					t.Errorf("what a person can say: %v", err)
				}
			}
		})
	}
}

// TestAgain: a guest that boots where it ended has the next right, and of its addresses those that are at home there.
func TestAgain(t *testing.T) {
	a := startedAgain(t)
	e := care.Ended{Held: endedWeb(t, a).Held()}
	e.Held.Unheard = &care.Unheard{Migration: "m-00000001", From: "paris"}
	h, err := a.again(e)
	if err != nil || h.Epoch != 4 || h.Dir != a.guestDir("web", "4") || h.Unheard != nil || len(h.Addresses) != 1 || h.Addresses[0].Home != "rome" || h.Addresses[0].Handover == "" {
		t.Errorf("%+v, %v", h, err)
	}
	e.Held.Addresses = e.Held.Addresses[1:] // it keeps the address of its former site
	_, err = a.again(e)
	agenttest.Refused(t, "a visitor", err, migration.CodeAddress, "its address 10.1.1.20 is at home on paris")
	e.Held.Description.Start, e.Held.Description.Image = nil, config.TinyImage
	if h, err := a.again(e); err != nil || len(h.Addresses) != 0 || h.Epoch != 4 {
		t.Errorf("of an image: %+v, %v", h, err)
	}
}

// TestStartAgainOfWhat: one that is under care, or never ended here, is told so; one that was adopted is adopted again,
// by whoever started it.
func TestStartAgainOfWhat(t *testing.T) {
	a := startedAgain(t)
	ask := func() error {
		r := callFrom(t, "", "", api.StartAgain{Fenced: true})
		r.SetPathValue("name", "web")
		_, err := a.apiStartAgain(r)
		return err
	}
	agenttest.Refused(t, "never here", ask(), migration.CodeUnknownGuest, "nothing is kept of one of that name")
	g := underCare(t, a.guests, "web", endedWeb(t, a))
	agenttest.Refused(t, "under care", ask(), migration.CodeUsage, "under care on this host already")
	leavesCare(t, a.guests, "web")
	g.Remember(func(h *care.Held) {
		h.Description.QMP, h.Description.NICs[0].Tap = "/run/none/qmp.sock", "tap-a"
	})
	if err := a.guests.KeepEnded(g, "powered off", time.Now()); err != nil {
		t.Fatal(err)
	}
	agenttest.Refused(t, "adopted", ask(), migration.CodeGuest, "somebody else had started it, and does that first, by its QMP socket /run/none/qmp.sock", "no QEMU runs there")
	if _, err := a.guests.Ended("web"); err != nil {
		t.Errorf("then nothing is kept: %v", err)
	}
}
