package agent

import (
	"net/http"
	"net/netip"
	"os"
	"sync/atomic"
	"testing"

	"godwit/agent/agenttest"
	"godwit/agent/care"
	"godwit/agent/config"
	"godwit/agent/detour"
	"godwit/agent/guests"
	"godwit/agent/peer"
	"godwit/agent/talk"
	"godwit/migration"
	"godwit/netstate"
	"godwit/netstate/tunnel"
)

// siteOfTheGone is rome with a guest that came from host paris, which peers do not name any more. The site of that name
// has paris-2, which answers as one that knows of no migration; asked counts what comes to it.
func siteOfTheGone(t *testing.T) (a *Agent, g *guests.Guest, asked *atomic.Int32) {
	t.Helper()
	a, g = landedFrom(t, nil)
	a.links["paris"].Close()
	other := a.config.Peers[0]
	other.Host = "paris-2"
	asked = new(atomic.Int32)
	a.config.Peers = []config.Neighbour{other}
	a.links = map[string]*peer.Link{other.Host: linked(t, a.config.Host, other.Host, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		var answer any = talk.CourseAnswer{Course: talk.CourseUnknown}
		if r.Method == http.MethodPost {
			answer = talk.ReleaseAnswer{State: "declined"}
		}
		peer.Answer(w, answer, nil)
	}))}
	return a, g, asked
}

// TestItsSiteDoesNotSayThatItHeard: that another host of its site knows nothing of the migration does not say that the
// source of a guest, which may only be cut off, takes it back no more.
func TestItsSiteDoesNotSayThatItHeard(t *testing.T) {
	a, g, asked := siteOfTheGone(t)
	if err := a.heard(t.Context(), g); err == nil || g.Held().Unheard == nil {
		t.Errorf("%v; %+v is kept", err, g.Held().Unheard)
	}
	if n := asked.Load(); n != 0 {
		t.Errorf("paris-2 was asked %d times", n)
	}
}

// TestItsSiteDoesNotDeclineForIt: nor does it say for a host from which a guest was taken back that it runs no more there.
func TestItsSiteDoesNotDeclineForIt(t *testing.T) {
	a, _, asked := siteOfTheGone(t)
	a.ctx = t.Context()
	taken := Taken{Migration: "m-00000001", Host: "paris", Undo: talk.Undo{Epoch: 4, Released: true}}
	if err := taken.write(a); err != nil {
		t.Fatal(err)
	}
	a.tellTaken(taken) // there is nobody to tell
	if _, err := os.Stat(taken.path(a)); err != nil || asked.Load() != 0 {
		t.Errorf("kept: %v; paris-2 was told %d times", err, asked.Load())
	}
}

// TestOnlyAPersonNamesASite: what a file, a plan or a certificate names is that host, and no other one of a site.
func TestOnlyAPersonNamesASite(t *testing.T) {
	a, g, _ := siteOfTheGone(t)
	_, _, err := a.link("paris")
	agenttest.Refused(t, "a link", err, migration.CodeUnknownSite, "host paris: not known on host rome (it knows: paris-2)")
	at := netip.MustParseAddrPort
	d := detour.Detour{Peer: "paris", Tunnel: tunnel.Config{Kind: tunnel.WireGuard, Local: at("192.0.2.2:700"), Remote: at("192.0.2.9:700")}}
	if pairs := a.otherPairs(d); len(pairs) > 0 {
		t.Errorf("the tunnel may take %v", pairs)
	}
	home := netip.MustParsePrefix("10.1.1.20/24")
	g.Remember(func(h *care.Held) { h.Addresses = []migration.Address{{Prefix: home, Home: "paris"}} })
	err = a.detours.Change("web", func(all map[string]*detour.Detour) {
		all["m-00000001"] = &detour.Detour{ID: "m-00000001", Guest: "web", Peer: "oslo", Leased: true, Visiting: []netstate.Visiting{{Addr: home.Addr(), Tunnel: "gw-oslo"}}}
	})
	if homes := a.roundabouts(g); err != nil || len(homes) > 0 {
		t.Errorf("%v; asked to send directly: %v", err, homes)
	}
	_, err = a.draft(migration.Request{Guest: "web", To: "bonn"})
	agenttest.Refused(t, "no site", err, migration.CodeUnknownSite, "site bonn: not known on host rome (it knows: paris-2)")
	if m, err := a.draft(migration.Request{Guest: "web", To: "paris"}); err != nil || m.plan.To != "paris-2" {
		t.Errorf("to site paris: %+v, %v", m, err)
	}
}
