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
		"a size below all": {func(h *Handed) { h.Addresses[0].Fits = -1 }, "not one that was asked for"},
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
