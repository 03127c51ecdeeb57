package agent

import (
	"net/http"
	"net/netip"
	"testing"
	"time"

	"godwit/agent/config"
	"godwit/agent/detour"
	"godwit/agent/limits"
	"godwit/agent/peer"
	"godwit/agent/talk"
	"godwit/internal/clock"
	"godwit/migration"
	"godwit/netstate"
)

// TestNobodyIsLedToByItsOwnWord: a home sends a guest's addresses further when the host that it
// sends them to says that it leads them there, itself or over others, and not otherwise.
func TestNobodyIsLedToByItsOwnWord(t *testing.T) {
	before := limits.AskLed
	defer func() { limits.AskLed = before }()
	addr := netip.MustParseAddr("10.2.1.40")
	leads := func(a *Agent, to string) {
		place(a, &detour.Detour{ID: "m-00000001", Guest: "web", Peer: to, Leased: true, Up: clock.Now(), Away: []netstate.Away{{Addr: addr, Active: true}}})
	}
	for _, c := range []struct {
		name  string
		paris func(*Agent)
		word  string
	}{
		{"it went on from there", func(paris *Agent) { leads(paris, "oslo") }, ""},
		{"it is there", func(*Agent) {}, "does not lead"},
		{"it went elsewhere", func(paris *Agent) {
			leads(paris, "cairo")
			paris.links["cairo"] = linked(t, "paris", "cairo", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				peer.Answer(w, nil, &migration.Problem{Code: migration.CodeAddress, Text: "host cairo does not lead it"})
			}))
		}, "does not lead"},
		{"it went on from there, and on", func(paris *Agent) {
			leads(paris, "cairo")
			paris.links["cairo"] = linked(t, "paris", "cairo", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				var ask talk.Led
				if err := peer.Decode(r, &ask); err != nil || ask.Hops != talk.MostHops-2 || ask.To != "oslo" {
					t.Errorf("%+v, %v", ask, err)
				}
				peer.Answer(w, nil, nil)
			}))
		}, ""},
		{"that host is down", nil, "ask paris"},
	} {
		rome, paris := between(t), bareAgent(t, &config.Config{Host: "paris", Peers: []config.Neighbour{{Host: "cairo", Site: "cairo"}}})
		var err error
		if paris.detours, err = detour.Load(paris.config.StatePath("detours.json"), config.Network{}); err != nil {
			t.Fatal(err)
		}
		if limits.AskLed.For = time.Minute; c.paris == nil { // nobody answers
			limits.AskLed.For = 100 * time.Millisecond
		}
		leads(rome, "paris")
		rome.links["paris"] = linked(t, "rome", "paris", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if c.paris == nil {
				<-r.Context().Done()
				return
			}
			value, err := paris.peerLed(r)
			peer.Answer(w, value, err)
		}))
		if c.paris != nil {
			c.paris(paris)
		}
		_, err = rome.leads(t.Context(), goodRepoint(), "oslo")
		refusedBy(t, c.name, err, c.word)
		if _, err = rome.leads(t.Context(), goodRepoint(), "paris"); err != nil {
			t.Errorf("%s: it is sent there already: %v", c.name, err)
		}
	}
}

// TestGoIsOfWhatWasAsked: a host that may have one address cannot take another with it.
func TestGoIsOfWhatWasAsked(t *testing.T) {
	a := between(t)
	addr, taken := netip.MustParseAddr("10.2.1.40"), netip.MustParseAddr("10.2.1.41")
	place(a, &detour.Detour{ID: "m-00000001", Guest: "web", Peer: "paris", Away: []netstate.Away{{Addr: addr, Active: true}, {Addr: taken, Active: true}}})
	place(a, &detour.Detour{ID: "m-00000002-rome", Guest: "web", Peer: "oslo", Asked: []netip.Addr{addr}})
	ask := goodRepoint()
	ask.Go, ask.Addresses = true, []netip.Addr{addr, taken}
	refusedBy(t, "another", a.sendDirectly(ask, "oslo"), "not what was asked for")
}
