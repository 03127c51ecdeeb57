package agent

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"testing"
	"time"

	"godwit/netstate"
)

// TestLeaseOutlivesTheMoveOn: a lease that runs out while its guest moves on is prolonged, until it has landed.
func TestLeaseOutlivesTheMoveOn(t *testing.T) {
	for _, c := range []struct {
		name     string
		left     time.Duration
		moves    bool
		tunnel   string
		prolongs bool
	}{
		{"it moves on", time.Second, true, "gwt-00000001", true},
		{"it moves on with much left", 10 * time.Minute, true, "gwt-00000001", false},
		{"it moves on with an address at home", time.Second, true, "", false},
		{"it moves on after the end", -time.Second, true, "gwt-00000001", true},
	} {
		a, g, d := leasing(t)
		d.Visiting = []netstate.Visiting{{Addr: netip.MustParseAddr("10.1.1.20"), Tunnel: c.tunnel}}
		d.Until = time.Now().Add(c.left)
		if c.moves {
			if err := g.Take("m-00000009"); err != nil {
				t.Fatal(err)
			}
		}
		a.lookAfter(t.Context(), *d) //nolint:errcheck // what of it is in the kernel is not the test's
		left := time.Until(placed(a, d.ID).Until)
		if prolonged := left > prolongAhead && left <= prolongBy; prolonged != c.prolongs {
			t.Errorf("%s: %v are left", c.name, left)
		}
	}
}

// TestPeerProlongs: a home keeps a lease for the host of its guest alone, never for less than it had, and not for
// good or for hours.
func TestPeerProlongs(t *testing.T) {
	for _, c := range []struct {
		name, caller string
		id           string
		had          time.Duration // 0: for good
		asked        time.Duration
		want         time.Duration // left, about
		refused      bool
	}{
		{"it runs out", "paris", "", time.Second, prolongBy, prolongBy, false},
		{"it has more", "paris", "", time.Hour, prolongBy, time.Hour, false},
		{"it is for good", "paris", "", 0, prolongBy, 0, false},
		{"another host's", "oslo", "", time.Second, prolongBy, time.Second, true},
		{"for hours", "paris", "", time.Second, time.Hour, time.Second, true},
		{"for less than nothing", "paris", "", time.Second, -time.Hour, time.Second, true},
		{"of another detour", "paris", "m-00000002", time.Second, prolongBy, time.Second, true},
	} {
		a, _, d := leasing(t)
		d.Until, d.Visiting = time.Time{}, nil // what leads here is not the test's
		if c.had > 0 {
			d.Until = time.Now().Add(c.had)
		}
		r := (&http.Request{
			TLS:  &tls.ConnectionState{PeerCertificates: []*x509.Certificate{{DNSNames: []string{c.caller}}}},
			Body: io.NopCloser(bytes.NewReader(fmt.Appendf(nil, `{"lease": %d}`, c.asked))),
		}).WithContext(t.Context())
		r.SetPathValue("id", d.ID)
		if c.id != "" {
			r.SetPathValue("id", c.id)
		}
		if _, err := a.peerProlong(r); (err != nil) != c.refused {
			t.Errorf("%s: %v", c.name, err)
		}
		until := placed(a, d.ID).Until
		if until.IsZero() != (c.want == 0) || c.want > 0 && time.Until(until).Round(5*time.Second) != c.want.Round(5*time.Second) {
			t.Errorf("%s: until %v, want %v from now", c.name, until, c.want)
		}
	}
}
