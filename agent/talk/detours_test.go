package talk

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/netip"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"godwit/agent/config"
	"godwit/agent/peer"
	"godwit/agent/record"
	"godwit/migration"
)

// goodRepoint is what oslo asks of rome, by whom it was sent to paris.
func goodRepoint() Repoint {
	return Repoint{
		Migration: "m-00000002-rome", Guest: "web", Addresses: []netip.Addr{netip.MustParseAddr("10.2.1.40")}, TunnelKey: strings.Repeat("A", 43) + "=",
		Tunnel: netip.MustParseAddrPort("192.0.2.3:700"), Kind: "auto", Lease: config.DefaultLease,
	}
}

// TestStanding: a home's answer is of what was asked for, each once, at a NIC.
func TestStanding(t *testing.T) {
	network, stoodFor := between().Network, netip.MustParseAddr("10.2.1.40")
	good := HandedAddress{Addr: stoodFor, MAC: "02:00:00:00:00:01", Fits: 1400}
	for name, c := range map[string]struct {
		change func(*Handed)
		word   string
	}{
		"good":             {func(*Handed) {}, ""},
		"another":          {func(h *Handed) { h.Addresses[0].Addr = netip.MustParseAddr("10.2.1.41") }, "not one that was asked for"},
		"twice":            {func(h *Handed) { h.Addresses = append(h.Addresses, good) }, "not one that was asked for"},
		"none":             {func(h *Handed) { h.Addresses = nil }, "0 of 1"},
		"no MAC":           {func(h *Handed) { h.Addresses[0].MAC = "here" }, "not one that was asked for"},
		"a group's MAC":    {func(h *Handed) { h.Addresses[0].MAC = "ff:ff:ff:ff:ff:ff" }, "not one that was asked for"},
		"a MAC of 8 bytes": {func(h *Handed) { h.Addresses[0].MAC = "02:00:00:00:00:00:00:01" }, "not one that was asked for"},
		"a size below all": {func(h *Handed) { h.Addresses[0].Fits = -1 }, "not one that was asked for"},
		"a size above all": {func(h *Handed) { h.Addresses[0].Fits = 1<<16 + 1 }, "not one that was asked for"},
	} {
		h := Handed{Addresses: []HandedAddress{good}}
		c.change(&h)
		got, err := h.Standing(network, []netip.Addr{stoodFor})
		if (err == nil) != (c.word == "") || err != nil && !strings.Contains(err.Error(), c.word) {
			t.Errorf("%s: %v, want %q", name, err, c.word)
		}
		if err == nil && (len(got) != 1 || got[0].Gateway != network.Gateway4 || got[0].Active) {
			t.Errorf("%s: %+v", name, got)
		}
	}
	network.Bridge, network.Gateway4 = "lo", netip.MustParseAddr("127.0.0.1") // its own, by which the kernel leads nothing
	got, err := Handed{Addresses: []HandedAddress{good}}.Standing(network, []netip.Addr{stoodFor})
	if err != nil || len(got) != 1 || got[0].Gateway.IsValid() || got[0].Subnet.IsValid() {
		t.Errorf("the router itself: %+v, %v", got, err)
	}
}

// TestRepointCheck: what another host asks of a detour to here is refused where it cannot be meant.
func TestRepointCheck(t *testing.T) {
	addr := netip.MustParseAddr("10.2.1.40")
	for name, c := range map[string]struct {
		change func(*Repoint)
		word   string
	}{
		"good":                      {func(*Repoint) {}, ""},
		"handed over by its home":   {func(r *Repoint) { r.Migration, r.Home = "m-00000002-lyon-rome", "lyon" }, ""},
		"as many as a guest has":    {func(r *Repoint) { r.Addresses = addressesFrom(addr, migration.MostAddresses) }, ""},
		"for good":                  {func(r *Repoint) { r.Lease, r.Forever = 0, true }, ""},
		"as long as a lease may be": {func(r *Repoint) { r.Lease = config.MostLease }, ""},
		"of no kind, as of before":  {func(r *Repoint) { r.Kind = "" }, ""},
		"to another host":           {func(r *Repoint) { r.Migration = "m-00000002-oslo" }, "not one to host rome"},
		"of no migration":           {func(r *Repoint) { r.Migration = "m-2-rome" }, "not one to host rome"},
		"of another home":           {func(r *Repoint) { r.Home = "lyon" }, "not one to host rome"},
		"a path as its home":        {func(r *Repoint) { r.Migration, r.Home = "m-00000002-../x-rome", "../x" }, "no host's name"},
		"a slash in its home":       {func(r *Repoint) { r.Migration, r.Home = "m-00000002-lyon/8-rome", "lyon/8" }, "no host's name"},
		"two words as its home":     {func(r *Repoint) { r.Migration, r.Home = "m-00000002-a b-rome", "a b" }, "no host's name"},
		"a home without an end":     {func(r *Repoint) { r.Home = strings.Repeat("x", 600); r.Migration += "-rome" }, "not one to host rome"},
		"one that it is called by":  {func(r *Repoint) { r.Home = strings.Repeat("x", 600); r.Migration = "m-00000002-" + r.Home + "-rome" }, "no host's name"},
		"a path as its guest":       {func(r *Repoint) { r.Guest = "../x" }, "not a name"},
		"no address":                {func(r *Repoint) { r.Addresses = nil }, "0 addresses"},
		"more than a guest has":     {func(r *Repoint) { r.Addresses = addressesFrom(addr, migration.MostAddresses+1) }, "65 addresses"},
		"an address that is none":   {func(r *Repoint) { r.Addresses = append(r.Addresses, netip.Addr{}) }, "is none, or is named twice"},
		"an address twice":          {func(r *Repoint) { r.Addresses = append(r.Addresses, addr) }, "is none, or is named twice"},
		"a lease that is over":      {func(r *Repoint) { r.Lease = -1 }, "a lease of -1ns"},
		"a longer lease":            {func(r *Repoint) { r.Lease = config.MostLease + 1 }, "a lease of"},
		"of another kind":           {func(r *Repoint) { r.Kind = "string" }, `tunnel "string" is unknown`},
		"no end":                    {func(r *Repoint) { r.Tunnel = netip.AddrPort{} }, "the tunnel's end is no address"},
		"no port":                   {func(r *Repoint) { r.Tunnel = netip.AddrPortFrom(r.Tunnel.Addr(), 0) }, "the tunnel's end is no address"},
		"no key":                    {func(r *Repoint) { r.TunnelKey = "secret" }, "the tunnel's key is not one"},
	} {
		r := goodRepoint()
		c.change(&r)
		if err := r.Check("rome"); (err == nil) != (c.word == "") || err != nil && !strings.Contains(err.Error(), c.word) {
			t.Errorf("%s: %v, want %q", name, err, c.word)
		}
	}
}

// addressesFrom are so many addresses, each the one after the last.
func addressesFrom(addr netip.Addr, n int) (out []netip.Addr) {
	for ; len(out) < n; addr = addr.Next() {
		out = append(out, addr)
	}
	return out
}

// FuzzPeerWords: whatever another host asks or tells after the move is refused, or cut down
// to what can be used.
func FuzzPeerWords(f *testing.F) {
	add := func(v any) {
		data, err := json.Marshal(v)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	add(goodRepoint())
	slashed := goodRepoint()
	slashed.Migration, slashed.Home = "m-00000002-../x-rome", "../x"
	add(slashed)
	add(Undo{Problem: migration.Problem{Code: "x", Text: "a\nb"}, Epoch: 1 << 63, Released: true})
	add(LandedAnswer{Lease: -time.Hour, Report: record.Report{Notes: make([]string, 9), Survival: &record.Survival{Connections: []record.Survivor{{Fate: "eaten"}, {Fate: migration.Lost}}}}, Leased: []netip.Addr{{}}})
	f.Add([]byte(`{"lease":9223372036854775807,"migration":"m-00000000-../../rome"}`))
	f.Add([]byte(`null`))
	f.Fuzz(func(t *testing.T, data []byte) {
		decode := func(into any) bool {
			return peer.Decode(&http.Request{Body: io.NopCloser(bytes.NewReader(data))}, into) == nil
		}
		var r Repoint
		if decode(&r) && r.Check("rome") == nil {
			if filepath.Base(r.Migration) != r.Migration || !migration.ValidID(r.Migration[:min(len(r.Migration), len("m-00000000"))]) || len(r.Addresses) > migration.MostAddresses || r.Lease < 0 || !regexp.MustCompile(`^m-[0-9a-f]{8}(-[^/\s]{1,511})?$`).MatchString(r.Migration) {
				t.Fatalf("%+v", r)
			}
		}
		line := func(s string) {
			if strings.ContainsAny(s, "\n\x1b\x00") || len(s) > 8*1024 {
				t.Fatalf("%.100q", s)
			}
		}
		var u Undo
		if decode(&u) {
			record.SaneProblem(&u.Problem)
			line(u.Text)
			d := migration.Destination{Landing: migration.Waiting, Epoch: 3}
			if next, _, err := d.Step(migration.Input{Kind: migration.Abort, Epoch: u.Epoch, Problem: &u.Problem}); err == nil && next.Valid() != nil {
				t.Fatalf("%+v: %v", u, next.Valid())
			}
		}
		var l LandedAnswer
		if decode(&l) {
			l.Sane()
			migration.Bare(l.Report.Next)
			if l.Lease < 0 || l.Lease > config.MostLease || len(l.Leased) > 2*migration.MostAddresses {
				t.Fatalf("%+v", l)
			}
			for _, n := range l.Report.Notes {
				line(n)
			}
		}
	})
}
