package agent

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"io"
	"net/http"
	"net/netip"
	"testing"

	"godwit/agent/care"
	"godwit/agent/config"
	"godwit/agent/guests"
	"godwit/agent/peer"
	"godwit/agent/talk"
	"godwit/migration"
)

// withoutRouter is an agent whose configuration names no router of IPv6, and a guest that has an
// address of it.
func withoutRouter(t *testing.T) (*Agent, *guests.Guest) {
	t.Helper()
	a := between(t)
	n := &a.config.Network
	n.Gateway4, n.V6 = netip.MustParseAddr("10.2.1.1"), netip.MustParsePrefix("fd00:2:1::/64")
	g := guests.New(care.Held{Description: config.Description{Name: "web"}}, nil)
	for _, addr := range []string{"10.2.1.20/24", "fd00:2:1::20/64"} {
		p := netip.MustParsePrefix(addr)
		g.Remember(func(h *care.Held) {
			h.Addresses = append(h.Addresses, migration.Address{Prefix: p, Gateway: n.GatewayOf(p.Addr().Is4()), Home: "rome"})
		})
	}
	underCare(t, a.guests, "web", g)
	return a, g
}

// TestLeavesWithAWayBack: a guest whose address has no router at home is not moved, neither away, where
// each return would fail, nor home. What the configuration names since counts.
func TestLeavesWithAWayBack(t *testing.T) {
	a, g := withoutRouter(t)
	a.links["oslo"] = new(peer.Link)
	leave := func() (*outgoing, error) {
		m, err := a.draft(migration.Request{Guest: "web", To: "oslo"})
		if err != nil {
			t.Fatal(err)
		}
		defer g.Drop(m.plan.ID)
		return m, a.wayBack(m.plan)
	}
	m, err := leave()
	refusedBy(t, "away", err, "its address fd00:2:1::20, whose home is rome, has no router there, without which it cannot come home; name network.gateway6 in that")
	refusedBy(t, "in the check", m.checkHere(t.Context()), "name network.gateway6")
	back := m.plan
	back.From, back.To = "oslo", "rome"
	refusedBy(t, "home", checkedBy(t, a, back), "name network.gateway6")
	a.config.Network.Gateway6 = netip.MustParseAddr("fd00:2:1::1")
	refusedBy(t, "home, since it is named", a.wayBack(back), "")
	m, err = leave()
	refusedBy(t, "away, since it is named", err, "")
	if got := m.plan.Held[1].Gateway; got != a.config.Network.Gateway6 {
		t.Errorf("its router is %s", got)
	}
	g.Remember(func(h *care.Held) { h.Addresses[1].Home = "oslo" })
	a.config.Network.Gateway6 = netip.Addr{}
	_, err = leave()
	refusedBy(t, "at home elsewhere", err, "")
}

// TestHostIsTheRouterItself: a guest whose address has its home's host itself for a router is not moved, neither away
// nor home; one whose home is elsewhere is.
func TestHostIsTheRouterItself(t *testing.T) {
	a := between(t)
	a.config.Network.Bridge = "lo" // which has an address, also where nobody is root
	plan := migration.Plan{Guest: "web", ID: "m-00000001", From: "rome", To: "oslo", Held: []migration.Address{
		{Prefix: netip.MustParsePrefix("10.2.1.20/24"), Gateway: netip.MustParseAddr("127.0.0.1"), Home: "rome"},
	}}
	const why = "its address 10.2.1.20, whose home is rome, has that host itself for a router (127.0.0.1, of its lo)"
	refusedBy(t, "away", a.wayBack(plan), why)
	plan.Held[0].Gateway, a.config.Network.Gateway4 = netip.Addr{}, plan.Held[0].Gateway
	refusedBy(t, "away, by the configuration", a.wayBack(plan), why)
	plan.From, plan.To = "oslo", "rome"
	refusedBy(t, "home", checkedBy(t, a, plan), why)
	plan.Held[0].Home = "oslo"
	refusedBy(t, "at home elsewhere", a.wayBack(plan), "")
}

// TestHostIsTheRouterOfWhoComes: a guest that would get an address whose router is the host itself, and could not leave
// it again, is refused; where it keeps its own, or gets one of the other subnet, it comes.
func TestHostIsTheRouterOfWhoComes(t *testing.T) {
	a := between(t)
	n := &a.config.Network
	n.Bridge, n.Gateway4 = "lo", netip.MustParseAddr("127.0.0.1")
	plan := migration.Plan{Guest: "web", ID: "m-00000001", From: "oslo", To: "rome", Network: "drain", Held: []migration.Address{
		{Prefix: netip.MustParsePrefix("10.3.1.20/24"), Gateway: netip.MustParseAddr("10.3.1.1"), Home: "oslo"},
	}}
	const why = "host rome refuses guest web: it is itself the router of its guests (127.0.0.1, of its lo), and the guest could not leave it again"
	refusedBy(t, "by its check", checkedBy(t, a, plan), why)
	n.V6 = netip.MustParsePrefix("fd00:2:1::/64")
	refusedBy(t, "the other subnet has no router", a.wayOn(plan), why)
	n.Gateway6 = netip.MustParseAddr("fd00:2:1::1")
	refusedBy(t, "the other subnet has one", a.wayOn(plan), "")
	if all := n.Subnets(); len(all) != 1 || all[0].Prefix != n.V6 {
		t.Errorf("guests get addresses of %v", all)
	}
	n.V6, n.Gateway6, plan.Network = netip.Prefix{}, netip.Addr{}, "tunnel"
	refusedBy(t, "it keeps its address", a.wayOn(plan), "")
	n.Gateway4, plan.Network = netip.MustParseAddr("10.2.1.1"), "drain"
	refusedBy(t, "another is the router", a.wayOn(plan), "")
}

// checkedBy is the answer to the check of a migration to a.
func checkedBy(t *testing.T, a *Agent, plan migration.Plan) error {
	t.Helper()
	body, err := json.Marshal(talk.Offer{Plan: plan, Description: config.Description{Name: plan.Guest}})
	if err != nil {
		t.Fatal(err)
	}
	r := (&http.Request{
		TLS:  &tls.ConnectionState{PeerCertificates: []*x509.Certificate{{DNSNames: []string{plan.From}}}},
		Body: io.NopCloser(bytes.NewReader(body)),
	}).WithContext(t.Context())
	r.SetPathValue("id", plan.ID)
	_, err = a.peerCheck(r)
	return err
}

// TestSubnetWithoutARouter: guests get no address of it where the other subnet has one, and a host that
// has no router at all goes on as it was.
func TestSubnetWithoutARouter(t *testing.T) {
	a, _ := withoutRouter(t)
	n := &a.config.Network
	if all := n.Subnets(); len(all) != 1 || all[0].Prefix != n.V4 {
		t.Errorf("IPv6 without a router: %v", all)
	}
	_, err := a.book.Free(t.Context(), netip.MustParseAddr("fd00:2:1::20"), "web", nil)
	refusedBy(t, "asked for by name", err, "name network.gateway6 in the configuration of rome, or another address")
	gateway4 := n.Gateway4
	n.Gateway4 = netip.Addr{}
	if all := n.Subnets(); len(all) != 2 {
		t.Errorf("no router at all: %v", all)
	}
	n.Gateway4, n.Gateway6 = gateway4, netip.MustParseAddr("fe80::1")
	if all := n.Subnets(); len(all) != 2 || all[1].Gateway != n.Gateway6 {
		t.Errorf("both: %v", all)
	}
	n.V6, n.Gateway6 = netip.Prefix{}, netip.Addr{}
	if all := n.Subnets(); len(all) != 1 || n.PassesOver(netip.MustParseAddr("fd00:2:1::20")) {
		t.Errorf("IPv4 alone: %v", all)
	}
}
