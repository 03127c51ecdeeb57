package agent

import (
	"net"
	"net/http"
	"net/netip"
	"testing"
	"time"

	"godwit/agent/agenttest"
	"godwit/agent/config"
	"godwit/agent/detour"
	"godwit/agent/limits"
	"godwit/agent/peer"
	"godwit/internal/clock"
	"godwit/migration"
	"godwit/netstate"
)

// sentAway has an agent send an address of guest web to a host.
func sentAway(a *Agent, addr, to string, mac string) {
	hardware, _ := net.ParseMAC(mac)
	place(a, &detour.Detour{
		ID: "m-00000007", Guest: "web", Peer: to, Leased: true, Up: clock.Now(), Until: clock.Now().Add(time.Hour),
		Away: []netstate.Away{{Addr: netip.MustParseAddr(addr), MAC: hardware, Active: true}},
	})
}

// TestNamesake: a guest by the name of one that left, and whose addresses are led after it still, is refused before
// anything is changed; the guest itself is not, whichever of its NICs it had then.
func TestNamesake(t *testing.T) {
	d := goodPreparation().Description
	for name, c := range map[string]struct{ guest, mac, word string }{
		"the guest itself":    {"web", d.NICs[0].MAC, ""},
		"by its other NIC":    {"web", d.NICs[1].MAC, ""},
		"another of its name": {"web", "52:54:00:00:99:99", "another guest of that name left it, and its address 10.2.1.40 is led to oslo for 1h0m0s"},
		"of another name":     {"db", "52:54:00:00:99:99", ""},
		"no MAC is known":     {"web", "", ""},
	} {
		a := between(t)
		sentAway(a, "10.2.1.40", "oslo", c.mac)
		refusedBy(t, name, a.namesake(c.guest, d), c.word)
	}
	a := between(t)
	sentAway(a, "10.2.1.40", "oslo", "52:54:00:00:99:99")
	p := goodPreparation()
	p.Tunnel = netip.MustParseAddrPort("192.0.2.1:700")
	_, err := a.peerPrepare(callFrom(t, "paris", p.Plan.ID, p))
	agenttest.Refused(t, "prepare", err, migration.CodeBusy, "another guest of that name")
	if len(a.incoming) > 0 || len(placed(a, "m-00000007").Away) != 1 {
		t.Error("something was begun, or forgotten")
	}
}

// TestStartByTheNameOfOneThatLeft: no guest is started by the name of one that left, and whose addresses are led after
// it still, nor is another adopted: what leads there would go with it. The guest itself may be adopted, as where it was
// started again by somebody.
func TestStartByTheNameOfOneThatLeft(t *testing.T) {
	started := goodPreparation().Description
	adopted, other := started, started
	adopted.QMP, other.QMP = "/run/web.qmp", "/run/web.qmp"
	other.NICs = []config.NIC{{MAC: "52:54:00:00:99:99"}}
	a := between(t)
	for name, d := range map[string]config.Description{"started": started, "adopted": adopted, "another": other} {
		refusedBy(t, name+", and none left", a.namesakeHere(d), "")
	}
	sentAway(a, "10.2.1.40", "oslo", started.NICs[0].MAC)
	const word = "guest web: a guest of that name left host rome, and its address 10.2.1.40 is led to oslo for 1h0m0s"
	refusedBy(t, "started", a.namesakeHere(started), word)
	refusedBy(t, "the guest itself, adopted", a.namesakeHere(adopted), "")
	refusedBy(t, "another one, adopted", a.namesakeHere(other), word)
	_, err := a.apiStartGuest(callFrom(t, "", "", started))
	agenttest.Refused(t, "start", err, migration.CodeBusy, word)
}

// TestComesFromWhereItIsLed: a host that says it has a guest does not get its addresses from a home that leads them
// elsewhere, unless it is led on from there; where nobody there answers the guest may come.
func TestComesFromWhereItIsLed(t *testing.T) {
	before := limits.AskLed
	defer func() { limits.AskLed = before }()
	const addr = "10.2.1.40"
	home := migration.Address{Prefix: netip.MustParsePrefix(addr + "/24"), Home: "rome"}
	for name, c := range map[string]struct {
		to   string
		oslo func(w http.ResponseWriter)
		word string
	}{
		"it is led there":       {"paris", nil, ""},
		"it is led on to there": {"oslo", func(w http.ResponseWriter) { peer.Answer(w, nil, nil) }, ""},
		"it is led elsewhere": {"oslo", func(w http.ResponseWriter) {
			peer.Answer(w, nil, &migration.Problem{Code: migration.CodeAddress, Text: "host oslo does not lead it"})
		}, "which this host leads elsewhere"},
		"an agent of before": {"oslo", func(w http.ResponseWriter) {
			peer.Answer(w, nil, &migration.Problem{Code: migration.CodeUsage, Text: "no such path"})
		}, ""},
		"nobody answers": {"oslo", nil, ""},
	} {
		a := between(t)
		if limits.AskLed.For = time.Minute; name == "nobody answers" {
			limits.AskLed.For = 300 * time.Millisecond
		}
		plan := goodPreparation().Plan
		plan.Held = append(plan.Held, home)
		sentAway(a, addr, c.to, "")
		a.links["oslo"] = linked(t, "rome", "oslo", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if c.oslo == nil {
				<-r.Context().Done()
				return
			}
			c.oslo(w)
		}))
		refusedBy(t, name, a.comesFromThere(t.Context(), plan), c.word)
		plan.Held = plan.Held[:1]
		refusedBy(t, name+", and not held", a.comesFromThere(t.Context(), plan), "")
	}
}
