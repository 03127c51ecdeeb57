package agent

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"godwit/agent/care"
	"godwit/agent/config"
	"godwit/agent/detour"
	"godwit/agent/peer"
	"godwit/agent/record"
	"godwit/agent/talk"
	"godwit/migration"
	"godwit/netstate"
	"godwit/vm"
)

// TestLandedByThisRight: a source ends its guest by what the destination says of this right to run it, and by nothing
// that it says of another one, or of a guest that was given up there.
func TestLandedByThisRight(t *testing.T) {
	why := &migration.Problem{Code: migration.CodeAsked, Text: "given up by a person"}
	for name, c := range map[string]struct {
		there record.Report
		words string // none: it has landed
	}{
		"this one":                {record.Report{Epoch: 3, Outcome: migration.Completed}, ""},
		"an agent of before says": {record.Report{Outcome: migration.Completed}, ""},
		"an earlier one":          {record.Report{Epoch: 2, Outcome: migration.Completed}, "answers for epoch 2"},
		"a later one":             {record.Report{Epoch: 4, Outcome: migration.Completed}, "answers for epoch 4"},
		"it was given up":         {record.Report{Epoch: 3, Outcome: migration.Aborted, Problem: why}, why.Text},
		"it was lost":             {record.Report{Epoch: 3, Outcome: migration.Failed, Problem: why}, why.Text},
	} {
		a, _ := served(t)
		m := leaving(a)
		m.state.Epoch = 3
		m.link = linked(t, "paris", "rome", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			peer.Answer(w, talk.LandedAnswer{Report: c.there, Lease: time.Hour}, nil)
		}))
		err := m.askLanded(t.Context())
		if (err != nil) != (c.words != "") || err != nil && !strings.Contains(err.Error(), c.words) {
			t.Errorf("%s: %v, want %q", name, err, c.words)
		}
		if needed := m.work.needed.Load(); (needed != nil) != (c.words == "") || needed != nil && needed.Lease != time.Hour {
			t.Errorf("%s: needs %+v", name, needed)
		}
	}
}

// obeys is a QEMU with that status, which fails to do one thing.
type obeys struct {
	vm.Machine
	status vm.Status
	fails  string
	did    []string
}

func (o *obeys) does(what string) error {
	if o.did = append(o.did, what); what == o.fails {
		return errors.New("it does not " + what)
	}
	return nil
}

func (o *obeys) Status(context.Context) (vm.Status, error) {
	if err := o.does("say"); err != nil {
		return "", err
	}
	return o.status, nil
}
func (o *obeys) CancelMigration(context.Context) error { return o.does("cancel") }
func (o *obeys) Cont(context.Context) error            { return o.does("continue") }

// TestGoOn: a guest that stays here runs on, and it is told where that is not known.
func TestGoOn(t *testing.T) {
	for _, c := range []struct {
		status vm.Status
		fails  string
		did    []string
	}{
		{vm.Running, "", []string{"say"}},
		{vm.Paused, "", []string{"say", "continue"}},
		{vm.FinishMigrate, "", []string{"say", "cancel", "continue"}},
		{vm.Paused, "say", []string{"say"}},
		{vm.Paused, "continue", []string{"say", "continue"}},
		{vm.FinishMigrate, "cancel", []string{"say", "cancel"}},
	} {
		machine := &obeys{status: c.status, fails: c.fails}
		was, err := goOn(t.Context(), machine, false)
		if (err != nil) != (c.fails != "") || !slices.Equal(machine.did, c.did) || c.fails != "say" && was != c.status || c.fails == "say" && was != "" {
			t.Errorf("%s, it does not %s: was %q, did %q: %v", c.status, c.fails, was, machine.did, err)
		}
	}
}

// TestGoOnAsItWas: one that we did not stop runs on where its QEMU has it, as its switchover ends, and nowhere else.
func TestGoOnAsItWas(t *testing.T) {
	for status, did := range map[vm.Status][]string{
		vm.Running: {"say"}, vm.Paused: {"say"}, vm.IOError: {"say"}, vm.FinishMigrate: {"say", "cancel"},
	} {
		machine := &obeys{status: status}
		if _, err := goOn(t.Context(), machine, true); err != nil || !slices.Equal(machine.did, did) {
			t.Errorf("%s: did %q: %v", status, machine.did, err)
		}
	}
}

// TestAdoptedBySocket: a QEMU that is under care by its socket is found, so that nobody adopts it by another name.
func TestAdoptedBySocket(t *testing.T) {
	a := between(t)
	for name, qmp := range map[string]string{"web": "/run/web.qmp", "db": ""} {
		g, _ := haltedGuest(t, a, name)
		g.Remember(func(h *care.Held) { h.Description.QMP = qmp })
	}
	for qmp, want := range map[string]string{"/run/web.qmp": "web", "/run/other.qmp": ""} {
		if got := a.adoptedBy(qmp); got != want {
			t.Errorf("%s: %q, want %q", qmp, got, want)
		}
	}
}

// TestForgetWhileItIsLed: a guest that was adopted is not forgotten while packets of its former addresses come to it:
// nobody would end that. Then it is, and it runs on.
func TestForgetWhileItIsLed(t *testing.T) {
	a := between(t)
	g, _ := haltedGuest(t, a, "web")
	g.Remember(func(h *care.Held) { h.Description.QMP = "/run/web.qmp" })
	a.detours = detour.New("", config.Network{}, map[string]*detour.Detour{"m-00000001": {ID: "m-00000001", Guest: "web", Visiting: []netstate.Visiting{{Tunnel: "gwt-1"}}}})
	ask := callFrom(t, "", "", nil)
	ask.SetPathValue("name", "web")
	if _, err := a.apiForgetGuest(ask); err == nil || !strings.Contains(err.Error(), "end of its lease") || g.Migration() != "" || found(a.guests, "web") != g {
		t.Errorf("%v, busy with %q", err, g.Migration())
	}
	a.detours = detour.New("", config.Network{}, map[string]*detour.Detour{})
	if _, err := a.apiForgetGuest(ask); err != nil || found(a.guests, "web") != nil || !g.Alive() {
		t.Errorf("%v, under care: %v", err, found(a.guests, "web"))
	}
}

// TestEndOfTheWaitIsNoLanding: a source whose agent stops while it waits for the guest's landing has not heard of one:
// it would end the guest.
func TestEndOfTheWaitIsNoLanding(t *testing.T) {
	a, _ := served(t)
	m := leaving(a)
	ctx, cancel := context.WithCancel(t.Context())
	m.link = linked(t, "paris", "rome", http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		cancel()
		<-r.Context().Done()
	}))
	if err := m.awaitLanding(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
}
