package agent

import (
	"encoding/base64"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"

	"godwit/agent/care"
	"godwit/agent/config"
	"godwit/agent/nameserver"
	"godwit/agent/record"
	"godwit/agent/statefile"
	"godwit/migration"
)

// nameServer refuses the first updates and takes those after.
func nameServer(t *testing.T, refuse int) (c nameserver.Config, taken func() []string) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	secret := base64.StdEncoding.EncodeToString([]byte("secret"))
	server := &dns.Server{Listener: listener, TsigSecret: map[string]string{"k.": secret},
		MsgAcceptFunc: func(dns.Header) dns.MsgAcceptAction { return dns.MsgAccept }}
	server.Handler = dns.HandlerFunc(func(w dns.ResponseWriter, q *dns.Msg) {
		m := new(dns.Msg)
		m.SetReply(q)
		if w.TsigStatus() != nil || refuse > 0 {
			refuse--
			m.SetRcode(q, dns.RcodeRefused)
		} else {
			for _, rr := range q.Ns {
				if rr.Header().Class == dns.ClassINET {
					got = append(got, strings.Join(strings.Fields(rr.String()), " "))
				}
			}
		}
		m.SetTsig("k.", dns.HmacSHA256, 300, time.Now().Unix())
		w.WriteMsg(m) //nolint:errcheck // the client says
	})
	ended := make(chan struct{})
	go func() { server.ActivateAndServe(); close(ended) }() //nolint:errcheck // it ends with the test
	stop := func() { server.Shutdown(); listener.Close(); <-ended }
	t.Cleanup(func() {
		if listener != nil {
			stop()
		}
	})
	file := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(file, []byte(secret), 0o600); err != nil {
		t.Fatal(err)
	}
	c = nameserver.Config{Server: listener.Addr().String(), Zone: "example.test", Key: nameserver.Key{Name: "k", File: file}}
	return c, func() []string { stop(); listener = nil; return got }
}

// TestUpdateNames: a server that refuses is asked again, so many times; each way it
// ends is one note.
func TestUpdateNames(t *testing.T) {
	at := []netip.Addr{netip.MustParseAddr("10.2.1.10"), netip.MustParseAddr("fd00:2:1::10")}
	waits := []time.Duration{0, time.Millisecond, time.Millisecond}
	for _, c := range []struct {
		refuse      int
		first, last string
		taken       int
	}{
		{0, "", "name service: web.example.test. is 10.2.1.10, fd00:2:1::10 now", 2},
		{2, "refused (REFUSED)", "is 10.2.1.10, fd00:2:1::10 now", 2},
		{3, "trying again", "given up after 3 tries: update web.example.test.", 0},
	} {
		server, taken := nameServer(t, c.refuse)
		a := &Agent{config: &config.Config{DNS: &server}}
		first := ""
		last := a.updateNames(t.Context(), "web", at, waits, func() bool { return true }, func(text string) { first += text })
		if got := taken(); len(got) != c.taken {
			t.Errorf("refused %d times: the server took %v, want %d records", c.refuse, got, c.taken)
		}
		if !strings.Contains(first, c.first) || (first == "") != (c.first == "") || !strings.Contains(last, c.last) || strings.Contains(last, "\n") {
			t.Errorf("refused %d times: said %q, then %q", c.refuse, first, last)
		}
	}
}

// TestTellNames: no server, or an address that is kept: nothing is told. What is
// heard after a migration's end is in the history all the same.
func TestTellNames(t *testing.T) {
	a := bareAgent(t, &config.Config{})
	if a.tellNames(migration.Plan{}, nil) != nil {
		t.Error("without a name server, something is told")
	}
	a.config.DNS = &nameserver.Config{}
	if a.tellNames(migration.Plan{Network: "tunnel"}, nil) != nil {
		t.Error("the address is kept, and something is told")
	}
	rec := record.New("paris", migration.Plan{ID: "m-00000001"}, time.Now())
	a.records.Add(rec)
	rec.End(migration.Completed, nil, time.Now())
	path := a.config.StatePath("history", "m-00000001-destination.json")
	if err := statefile.Write(path, rec.Snapshot()); err != nil {
		t.Fatal(err)
	}
	a.remark("m-00000001", rec, "late")
	var rep record.Report
	if err := statefile.Read(path, &rep); err != nil || len(rep.Notes) != 1 || len(rec.Snapshot().Notes) != 1 {
		t.Errorf("notes in the history %v, in memory %v, %v", rep.Notes, rec.Snapshot().Notes, err)
	}
}

// TestNameOfAGuestThatWentOn: a name server that did not answer is not told, later on, of
// addresses that the guest has left: its next host has told it of others.
func TestNameOfAGuestThatWentOn(t *testing.T) {
	server, taken := nameServer(t, 1)
	a := &Agent{config: &config.Config{DNS: &server}, guests: &guests{byName: map[string]*Guest{}}}
	here := migration.Address{Prefix: netip.MustParsePrefix("10.2.1.10/24")}
	g := &Guest{Held: care.Held{Description: config.Description{Name: "web"}, Addresses: []migration.Address{here}}}
	a.guests.byName["web"] = g
	still := func() bool { return a.hasAddresses("web", []migration.Address{here}) }
	m := &outgoing{}
	g.busy, a.outgoing = "m-00000002", map[string]*outgoing{"m-00000002": m}
	if !still() {
		t.Fatal("it is not here")
	}
	if m.told.Store(new(sourceDoing(t, migration.Release))); still() {
		t.Error("it was let go, and its next host tells of it")
	}
	m.told.Store(nil)
	said := a.updateNames(t.Context(), "web", bare(g.Held.Addresses), []time.Duration{0, time.Millisecond}, still, func(string) { delete(a.guests.byName, "web") })
	if got := taken(); len(got) > 0 || !strings.Contains(said, "has left 10.2.1.10") {
		t.Errorf("%q, told %v", said, got)
	}
}
