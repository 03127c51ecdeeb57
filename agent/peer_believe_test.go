package agent

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"

	"godwit/agent/agenttest"
	"godwit/agent/care"
	"godwit/agent/config"
	"godwit/agent/detour"
	"godwit/agent/guests"
	"godwit/agent/journal"
	"godwit/agent/metrics"
	"godwit/agent/record"
	"godwit/agent/statefile"
	"godwit/agent/talk"
	"godwit/internal/clock"
	"godwit/migration"
	"godwit/netstate"
	"godwit/netstate/tunnel"
)

// callFrom is a call of another host about a migration, or a detour.
func callFrom(t *testing.T, host, id string, body any) *http.Request {
	t.Helper()
	data, err := json.Marshal(body)
	if err != nil {
		t.Fatal(err)
	}
	r := (&http.Request{
		TLS:  &tls.ConnectionState{PeerCertificates: []*x509.Certificate{{DNSNames: []string{host}}}},
		Body: io.NopCloser(bytes.NewReader(data)),
	}).WithContext(t.Context())
	r.SetPathValue("id", id)
	return r
}

// journalOf writes a journal with one record, and returns its path.
func journalOf(t *testing.T, a *Agent, id string, record any) string {
	t.Helper()
	log, err := journal.Create(a.config.StatePath("journal"), id)
	if err == nil {
		err = log.Append(record, false)
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := log.Close(); err != nil {
		t.Fatal(err)
	}
	return a.config.StatePath("journal", id+".journal")
}

// between is rome, whose neighbours are paris and oslo.
func between(t *testing.T) *Agent {
	up := func(addr string) []config.Uplink {
		return []config.Uplink{{Name: "public", Address: netip.MustParseAddr(addr), Carries: "both"}}
	}
	net := netip.MustParsePrefix
	a := bareAgent(t, &config.Config{
		Host: "rome", Site: "rome", Uplinks: up("192.0.2.2"), Network: config.Network{Bridge: "br0", V4: net("10.2.1.0/24"), Gateway4: netip.MustParseAddr("10.2.1.1")},
		Peers: []config.Neighbour{
			{Host: "paris", Site: "paris", V4: net("10.1.1.0/24"), Uplinks: up("192.0.2.1")},
			{Host: "oslo", Site: "oslo", V4: net("10.3.1.0/24"), Uplinks: up("192.0.2.3")},
			{Host: "rome2", Site: "rome", V4: net("10.2.1.0/24"), Uplinks: up("192.0.2.4")},
		},
	})
	a.records, a.outgoing, a.incoming, a.abortedEarly = noRecords(a.config), map[string]*outgoing{}, map[string]*incoming{}, map[string]earlyAbort{}
	var err error
	if a.detours, err = detour.Load(a.config.StatePath("detours.json"), a.config.Network); err != nil {
		t.Fatal(err)
	}
	return a
}

// TestBelieve: what a guest that comes has is held against what guests here, and this machine, have.
func TestBelieve(t *testing.T) {
	a := between(t)
	other := migration.Address{Prefix: netip.MustParsePrefix("10.2.1.30/24")}
	underCare(t, a.guests, "db", guests.New(care.Held{Description: config.Description{Name: "db"}, Addresses: []migration.Address{other}}, nil))
	for _, c := range []struct{ held, home, word string }{
		{"10.9.1.9/24", "cairo", ""},
		{"10.2.1.30/24", "rome", "guest db of this host has it"},
		{"127.0.0.1/32", "cairo", "this host's own"},
	} {
		p := goodPreparation()
		p.Tunnel = netip.MustParseAddrPort("192.0.2.1:700")
		p.Plan.Held = []migration.Address{{Prefix: netip.MustParsePrefix(c.held), Home: c.home}}
		refusedBy(t, c.held, a.believe(p), c.word)
	}
}

// TestEndedIsToldToItsSource: what became of a guest, and of its clients, is told to the host that it came from, and to
// no other of the fleet.
func TestEndedIsToldToItsSource(t *testing.T) {
	a := between(t)
	p := goodPreparation()
	rep := record.Report{ID: p.Plan.ID, Guest: "web", From: "paris", To: "rome", Epoch: p.Plan.Epoch, Outcome: migration.Completed, Ended: 1}
	if err := statefile.Write(a.config.StatePath("history", p.Plan.ID+"-destination.json"), rep); err != nil {
		t.Fatal(err)
	}
	for name, call := range map[string]func(*http.Request) (any, error){
		"release": a.peerRelease, "landing": a.peerLanding, "landed": a.peerLanded, "events": a.peerEvents, "refill": a.peerRefill,
	} {
		if answer, err := call(callFrom(t, "paris", p.Plan.ID, talk.Refill{Epoch: p.Plan.Epoch})); err != nil || answer == nil {
			t.Errorf("%s: its source is told %+v, %v", name, answer, err)
		}
		answer, err := call(callFrom(t, "oslo", p.Plan.ID, talk.Refill{Epoch: p.Plan.Epoch}))
		agenttest.Refused(t, name+", of another host", err, migration.CodePeer, "not one from host oslo")
		if answer != nil {
			t.Errorf("%s: another host is told %+v", name, answer)
		}
	}
}

// goodRepoint is what oslo asks of rome, by whom it was sent to paris.
func goodRepoint() talk.Repoint {
	return talk.Repoint{
		Migration: "m-00000002-rome", Guest: "web", Addresses: []netip.Addr{netip.MustParseAddr("10.2.1.40")}, TunnelKey: strings.Repeat("A", 43) + "=",
		Tunnel: netip.MustParseAddrPort("192.0.2.3:700"), Kind: "auto", Lease: config.DefaultLease,
	}
}

// TestRepointIsChecked: a host cannot name detours that are not its own to make, such as
// paths, lead a tunnel to a third party, or make tunnels for nothing.
func TestRepointIsChecked(t *testing.T) {
	a := between(t)
	now := clock.Now()
	away := []netstate.Away{{Addr: netip.MustParseAddr("10.2.1.40"), Tunnel: "gwt-00000001"}}
	place(a, &detour.Detour{ID: "m-00000001", Guest: "web", Peer: "paris", Away: away, Up: now})
	place(a, &detour.Detour{ID: "m-00000003-rome", Guest: "db", Peer: "oslo", Up: now})
	for name, c := range map[string]struct {
		change func(*talk.Repoint)
		word   string
	}{
		"a path":                   {func(r *talk.Repoint) { r.Migration = "../detours-rome" }, "not one to host rome"},
		"another's home":           {func(r *talk.Repoint) { r.Migration = "m-00000002-oslo" }, "not one to host rome"},
		"a migration itself":       {func(r *talk.Repoint) { r.Migration = "m-00000001" }, "not one to host rome"},
		"its own, for another":     {func(r *talk.Repoint) { r.Home = "rome2" }, "not one to host rome"},
		"another's, for itself":    {func(r *talk.Repoint) { r.Migration = "m-00000002-rome2-rome" }, "not one to host rome"},
		"for one that is unknown":  {func(r *talk.Repoint) { r.Migration, r.Home = "m-00000002-lyon-rome", "lyon" }, "no host that rome knows"},
		"for a path":               {func(r *talk.Repoint) { r.Migration, r.Home = "m-00000002-../x-rome", "../x" }, "no host's name"},
		"no address":               {func(r *talk.Repoint) { r.Addresses = nil }, "0 addresses"},
		"one address for many":     {func(r *talk.Repoint) { r.Addresses = append(r.Addresses, r.Addresses[0]) }, "named twice"},
		"thousands":                {func(r *talk.Repoint) { r.Addresses = make([]netip.Addr, 5000) }, "5000 addresses"},
		"a lease below nothing":    {func(r *talk.Repoint) { r.Lease = -1 }, "a lease of -1ns"},
		"a lease for a century":    {func(r *talk.Repoint) { r.Lease = 1 << 62 }, "a lease of"},
		"a tunnel to a third":      {func(r *talk.Repoint) { r.Tunnel = netip.MustParseAddrPort("192.0.2.1:700") }, "no uplink of host oslo"},
		"a tunnel of another kind": {func(r *talk.Repoint) { r.Kind = "exec:id" }, "is unknown"},
		"another guest's detour":   {func(r *talk.Repoint) { r.Migration = "m-00000003-rome" }, "is of guest db"},
		"a guest that is a path":   {func(r *talk.Repoint) { r.Guest = "../web" }, "not a name"},
		"an address not sent away": {func(r *talk.Repoint) { r.Addresses[0] = netip.MustParseAddr("10.2.1.41") }, "does not send all of"},
		"go, before it was asked":  {func(r *talk.Repoint) { r.Go = true }, "no tunnel to oslo"},
	} {
		ask := goodRepoint()
		c.change(&ask)
		answer, err := a.peerRepoint(callFrom(t, "oslo", "", ask))
		if err == nil || !strings.Contains(err.Error(), c.word) {
			t.Errorf("%s: %+v, %v, want %q", name, answer, err, c.word)
		}
	}
	if len(a.detours.List("")) != 2 {
		t.Errorf("detours: %+v", a.detours.List(""))
	}
}

// TestEndedDetourIsNoPath: what a detour's end says of its migration is written nowhere but
// to that migration's history.
func TestEndedDetourIsNoPath(t *testing.T) {
	a := between(t)
	place(a, &detour.Detour{ID: "../detours-rome", Guest: "web", Peer: "oslo", Up: clock.Now()})
	path := a.config.StatePath("detours.json")
	if err := statefile.Write(path, map[string]string{}); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(a.config.StatePath("history"), 0o700); err != nil {
		t.Fatal(err)
	}
	a.records.Amend(migrationOf("../detours-rome"), func(r *record.Report) { r.Survival = &record.Survival{} })
	if data, err := os.ReadFile(path); err != nil || strings.TrimSpace(string(data)) != "{}" {
		t.Errorf("detours.json is now %s, %v", data, err)
	}
}

// TestOfferIsBounded: what is only asked for is held against the same bounds as what is to be made ready. To look for
// each of some hundred thousand addresses among the others would keep a processor of this host busy for minutes.
func TestOfferIsBounded(t *testing.T) {
	a := between(t)
	for name, c := range map[string]struct {
		change func(*talk.Offer)
		word   string
	}{
		"more addresses than any guest has": {func(o *talk.Offer) { o.Plan.Held = slices.Repeat(o.Plan.Held, 10_000) }, "10000 addresses"},
		"an address that is none":           {func(o *talk.Offer) { o.Plan.Held = append(o.Plan.Held, migration.Address{}) }, "an address that is none"},
		"an address of no migration":        {func(o *talk.Offer) { o.Plan.Held[0].Handover = "m-1" }, "no migration"},
		"of another guest":                  {func(o *talk.Offer) { o.Plan.Guest = "../x" }, `plan of guest "../x": the description is of "web"`},
	} {
		good := goodPreparation()
		o := talk.Offer{Plan: good.Plan, Description: good.Description, Facts: good.Facts}
		c.change(&o)
		_, err := a.peerCheck(callFrom(t, "paris", o.Plan.ID, o))
		agenttest.Refused(t, name, err, migration.CodeUsage, c.word)
	}
}

// TestKeysStayInside: nobody who asks an agent, of whatever, is told a tunnel's private key.
func TestKeysStayInside(t *testing.T) {
	a := between(t)
	a.metrics = metrics.New(metrics.Build{}, nil)
	private, _, err := tunnel.NewKey()
	if err != nil {
		t.Fatal(err)
	}
	key, err := json.Marshal(private)
	if err != nil {
		t.Fatal(err)
	}
	place(a, &detour.Detour{ID: "m-00000001", Guest: "web", Peer: "paris", Tunnel: tunnel.Config{Name: "gwt-00000001", PrivateKey: private}, Up: clock.Now()})
	for _, path := range []string{"/v1/host", "/v1/guests", "/v1/detours", "/v1/migrations"} {
		said := httptest.NewRecorder()
		a.localAPI().ServeHTTP(said, httptest.NewRequest(http.MethodGet, path, nil).WithContext(t.Context()))
		if strings.Contains(said.Body.String(), string(key)) {
			t.Errorf("GET %s: %s", path, said.Body)
		}
	}
}
