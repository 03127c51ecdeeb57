package agent

import (
	"net/http"
	"net/netip"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"godwit/agent/addresses"
	"godwit/agent/agenttest"
	"godwit/agent/care"
	"godwit/agent/guests"
	"godwit/agent/peer"
	"godwit/agent/peer/peertest"
	"godwit/agent/probe"
	"godwit/agent/talk"
	"godwit/internal/need"
	"godwit/migration"
	"godwit/netstate/netns"
)

// TestRouterIsMissed: a router for which nobody answers is told of by the next address that needs it, and bars nothing.
func TestRouterIsMissed(t *testing.T) {
	router4, router6 := netip.MustParseAddr("10.2.1.1"), netip.MustParseAddr("fd00:2:1::1")
	next := []migration.Address{
		{Prefix: netip.MustParsePrefix("10.2.1.10/24"), Gateway: router4}, {Prefix: netip.MustParsePrefix("fd00:2:1::a/64"), Gateway: router6},
	}
	why := func(what, addr string) string {
		return what + "; while it is not there, the next address " + addr + " is reached from its own subnet alone"
	}
	for name, c := range map[string]struct {
		silent4, silent6 string
		next             []migration.Address
		want             []string
	}{
		"both answer":       {"", "", next, nil},
		"one does not":      {"no 4", "", next, []string{why("no 4", "10.2.1.10")}},
		"neither does":      {"no 4", "no 6", next, []string{why("no 4", "10.2.1.10"), why("no 6", "fd00:2:1::a")}},
		"one is not needed": {"", "no 6", next[:1], nil},
	} {
		routers := []addresses.Router{{Addr: router4, Silent: c.silent4}, {Addr: router6, Silent: c.silent6}}
		if got := noteSilent(routers, c.next); !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

// TestNotesOfADestination: what a destination would have a person know is in the plan, and in the report.
func TestNotesOfADestination(t *testing.T) {
	m, n := budgeted(t, "hybrid", 300*time.Millisecond, 20*time.Millisecond)
	m.guest = guests.New(care.Held{}, gone{})
	m.plan.Network, m.plan.Transfer = "drain", "qemu-tcp"
	m.link = peertest.Link(t, "paris", n.Host, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		peer.Answer(w, talk.Acceptance{
			Token: make([]byte, probe.TokenLength), Next: []migration.Address{{Prefix: netip.MustParsePrefix("10.2.1.10/24"), Home: "rome"}}, Notes: []string{"no\nrouter"},
		}, nil)
	}), nil)
	if err := m.askThere(t.Context(), n); err != nil {
		t.Fatal(err)
	}
	if got := m.rec.Snapshot().Notes; !slices.Contains(got, "host rome: no router") {
		t.Errorf("%q", got)
	}
}

// TestCheckTellsOfTheBridge: a destination whose bridge keeps a guest silent for a while takes it, and says so.
func TestCheckTellsOfTheBridge(t *testing.T) {
	need.QEMU(t)
	name := agenttest.Bridged(t)
	for _, line := range []string{"link set br0 type bridge stp_state 1", "link add lan0 master br0 type veth peer name far0"} {
		if out, err := exec.CommandContext(t.Context(), "ip", append([]string{"-n", name}, strings.Fields(line)...)...).CombinedOutput(); err != nil {
			t.Fatalf("ip %s: %v: %s", line, err, out)
		}
	}
	a, good := between(t), goodPreparation()
	var err error
	if a.probes, err = probe.Reflect(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	a.config.Network.LAN = "lan0"
	o := talk.Offer{Plan: good.Plan, Description: good.Description, Facts: good.Facts, MTU: a.config.Network.MTU}
	o.Plan.Network = "tunnel"
	err = netns.Do(name, func() error {
		answer, err := a.peerCheck(callFrom(t, "paris", o.Plan.ID, o))
		if accepted, ok := answer.(talk.Acceptance); !ok || len(accepted.Notes) != 1 || !strings.Contains(accepted.Notes[0], "spanning tree") {
			t.Errorf("%+v", answer)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}
