package agent

import (
	"fmt"
	"net/netip"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"godwit/agent/agenttest"
	"godwit/agent/config"
	"godwit/agent/record"
	"godwit/agent/talk"
	"godwit/internal/need"
	"godwit/migration"
	"godwit/netstate/netns"
)

// TestNetworkOfWhatCannotBeAnnounced: a guest that could announce only its own side of a NAT is refused where its
// connections are to follow; where network auto is drain, as none can, it moves, and announces nothing.
func TestNetworkOfWhatCannotBeAnnounced(t *testing.T) {
	behind := migration.Address{Prefix: netip.MustParsePrefix("10.2.1.10/24"), Public: netip.MustParseAddr("203.0.113.10"), Endpoint: 3}
	six := migration.Address{Prefix: netip.MustParsePrefix("fd02::10/64"), Endpoint: 4}
	for _, c := range []struct {
		network string
		chosen  bool
		refused bool
	}{{"mptcp", false, true}, {"mptcp", true, true}, {"drain", true, false}} {
		accepted := []migration.Address{behind, six}
		plan := migration.Plan{Guest: "web", Network: c.network, Chosen: c.chosen, Next: accepted}
		m := &outgoing{plan: plan, work: &sourceWork{capabilities: []string{"configure"}}, rec: record.New("paris", plan, time.Now())}
		if err := m.settleAnnounced(); (err != nil) != c.refused {
			t.Errorf("%+v: %v", c, err)
		}
		if silent := m.plan.Next[0].Endpoint+m.plan.Next[1].Endpoint == 0; silent == c.refused || m.plan.Chosen != c.refused && c.chosen || m.plan.Network != c.network {
			t.Errorf("%+v: %+v", c, m.plan)
		}
		if accepted[0].Endpoint != 3 || len(m.rec.Snapshot().Notes) > 1 {
			t.Errorf("%+v: accepted were %+v; %q", c, accepted, m.rec.Snapshot().Notes)
		}
	}
}

// TestNoteUnseen: the check says of an address that clients of the internet do not reach what is to be done; of a guest
// that keeps its own it says nothing.
func TestNoteUnseen(t *testing.T) {
	open, inside, inside6 := migration.Address{Prefix: netip.MustParsePrefix("203.0.113.10/24")}, netip.MustParsePrefix("10.2.1.10/24"), netip.MustParsePrefix("fd02::10/64")
	open6 := migration.Address{Prefix: netip.MustParsePrefix("2001:db8::10/64")}
	for network, want := range map[string][]string{"mptcp": {"10.2.1.10 is a private one", "network.public4 of rome", "fd02::10 is", "network.public6 of rome"}, "drain": {"network.public4"}, "tunnel": nil} {
		plan := migration.Plan{Guest: "web", To: "rome", Network: network, Held: []migration.Address{open, open6}, Next: []migration.Address{{Prefix: inside}, {Prefix: inside6}}}
		m := &outgoing{plan: plan, work: &sourceWork{}, rec: record.New("paris", plan, time.Now())}
		m.noteUnseen()
		notes := strings.Join(m.rec.Snapshot().Notes, "\n")
		if want == nil && notes != "" || slices.ContainsFunc(want, func(w string) bool { return !strings.Contains(notes, w) }) {
			t.Errorf("%s: noted %q, want %q", network, notes, want)
		}
	}
}

// TestGrantedWithoutIPv6: a guest that has IPv6 turned off is given no such address.
func TestGrantedWithoutIPv6(t *testing.T) {
	v4 := migration.Address{Prefix: netip.MustParsePrefix("10.2.1.10/24")}
	v6 := migration.Address{Prefix: netip.MustParsePrefix("fd02::10/64")}
	a, offer := between(t), talk.Offer{Plan: migration.Plan{Guest: "web"}, NoIPv6: true}
	if next, err := a.grantable(offer, []migration.Address{v4, v6}); err != nil || !slices.Equal(next, []migration.Address{v4}) {
		t.Errorf("next addresses %v, %v", next, err)
	}
	refusedBy(t, "IPv6 alone", func() error { _, err := a.grantable(offer, []migration.Address{v6}); return err }(), "turned off")
}

// TestAskedForInAnotherFamily: an address that was asked for, and that the guest has no use for, is refused, and not
// another one given.
func TestAskedForInAnotherFamily(t *testing.T) {
	a := between(t)
	six, v4 := netip.MustParseAddr("fd00:2:1::20"), migration.Address{Prefix: netip.MustParsePrefix("10.2.1.10/24")}
	for agent, word := range map[string]string{"": "turned off", "dhcp": "by DHCP in IPv4 only"} {
		offer := talk.Offer{Plan: migration.Plan{Guest: "web", Want: six}, NoIPv6: agent == "", Description: config.Description{Agent: agent}}
		_, err := a.grantable(offer, []migration.Address{v4, {Prefix: netip.PrefixFrom(six, 64)}})
		agenttest.Refused(t, "IPv6 for a guest without", err, migration.CodeAddress, "next address fd00:2:1::20", word, "--address")
		offer.Plan.Want = v4.Prefix.Addr()
		_, err = a.grantable(offer, []migration.Address{v4, {Prefix: netip.PrefixFrom(six, 64)}})
		agenttest.Refused(t, "IPv4 for a guest without IPv6", err, "")
	}
}

// TestRouterKnowsWhoComes: the router of a site knows where a guest's next addresses are before anybody sends to them.
func TestRouterKnowsWhoComes(t *testing.T) {
	name := agenttest.Bridged(t)
	for _, command := range []string{
		"link add port type veth peer name router", "link set port up master br0", "link set router up",
		"addr add 10.2.1.1/24 dev router", "addr add fd02::1/64 dev router nodad",
	} {
		if out, err := exec.Command("ip", append([]string{"-n", name}, strings.Fields(command)...)...).CombinedOutput(); err != nil {
			t.Fatalf("ip %s: %v: %s", command, err, out)
		}
	}
	shows := func(words ...string) string {
		out, err := exec.Command("ip", append([]string{"-n", name}, words...)...).CombinedOutput()
		return fmt.Sprint(string(out), err)
	}
	for limit := need.Patient(10 * time.Second); ; time.Sleep(10 * time.Millisecond) { // the kernel brings a link and an address up when it comes to it
		link, addr := shows("-d", "link", "show", "port"), shows("-6", "addr", "show", "dev", "router")
		if strings.Contains(link, "state forwarding") && !strings.Contains(addr, "tentative") {
			break
		} else if limit.Over() {
			t.Fatal(link, addr)
		}
	}
	a := between(t)
	next := []migration.Address{
		{Prefix: netip.MustParsePrefix("10.2.1.10/24"), Gateway: netip.MustParseAddr("10.2.1.1")},
		{Prefix: netip.MustParsePrefix("fd02::10/64"), Gateway: netip.MustParseAddr("fd02::1")},
		{Prefix: netip.MustParsePrefix("fd02::11/64")}, // of no router
	}
	const mac = "52:54:00:00:01:0b"
	err := netns.Do(name, func() error {
		a.introduce(next, config.NIC{MAC: mac}.Hardware())
		return nil
	})
	refusedBy(t, "introduce", err, "")
	for _, n := range next[:2] {
		knows := func() bool {
			return strings.Contains(shows("neigh", "show", n.Prefix.Addr().String(), "dev", "router"), mac)
		}
		for deadline := time.Now().Add(10 * time.Second); !knows(); time.Sleep(10 * time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("the router does not know %s", n.Prefix.Addr())
			}
		}
	}
}

// TestPromiseWhileAMigrationEnds: an address is promised to one guest while the migration of
// another ends; neither waits for the other for ever.
func TestPromiseWhileAMigrationEnds(t *testing.T) {
	a := between(t)
	const times = 20000
	done := make(chan struct{}, 2)
	go func() {
		for range times {
			if err := a.book.Promise(netip.MustParseAddr("10.1.1.20"), "web"); err != nil {
				t.Error(err)
			}
		}
		done <- struct{}{}
	}()
	go func() {
		for range times {
			a.mu.Lock()
			a.incoming["m-00000001"] = &incoming{plan: migration.Plan{Guest: "db"}}
			a.mu.Unlock()
			a.forgetIncoming("m-00000001")
		}
		done <- struct{}{}
	}()
	for range 2 {
		select {
		case <-done:
		case <-time.After(30 * time.Second):
			t.Fatal("they wait for each other")
		}
	}
}

// TestPromisesOfTheNextMove: a move that ends here takes nothing from the next one of its guest, which has been
// promised its address meanwhile. What was promised to the first is not kept for longer than that.
func TestPromisesOfTheNextMove(t *testing.T) {
	a, p := awaiting(t)
	next := p.Plan.Next[0].Prefix.Addr()
	if err := a.book.PromiseNext(p.Plan); err != nil {
		t.Fatal(err)
	}
	m, err := a.incomingFor(p) // its disk's size is not said, so that it is undone at once
	if err != nil {
		t.Fatal(err)
	}
	a.actors.Wait()
	refusedBy(t, "it is over", a.book.Promise(next, "db"), "")
	a.book.Release("db", next)
	a.incoming[p.Plan.ID] = m
	if err := a.book.PromiseNext(p.Plan); err != nil { // its source asks again, as the answer was lost
		t.Fatal(err)
	}
	if again, err := a.incomingFor(p); again != m || err != nil {
		t.Fatalf("asked again: %p and not %p, %v", again, m, err)
	}
	a.forgetIncoming(p.Plan.ID)
	refusedBy(t, "it was asked for again", a.book.Promise(next, "db"), "")
	a.book.Release("db", next)
	a.incoming[p.Plan.ID] = m
	if err := a.book.PromiseNext(p.Plan); err != nil { // of the next try, which waits for the end of this one
		t.Fatal(err)
	}
	a.forgetIncoming(p.Plan.ID)
	refusedBy(t, "the next try was promised it", a.book.Promise(next, "db"), "guest web of this host has it")
}
