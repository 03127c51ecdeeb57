package agent

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"godwit/agent/addresses"
	"godwit/agent/care"
	"godwit/agent/config"
	"godwit/agent/detour"
	"godwit/agent/guests"
	"godwit/agent/journal"
	"godwit/agent/peer"
	"godwit/agent/record"
	"godwit/migration"
)

func TestDescriptionsNetworkIsTheDefault(t *testing.T) {
	a := bareAgent(t, &config.Config{Host: "paris-1", Site: "paris", Peers: []config.Neighbour{{Host: "rome-1", Site: "rome"}}})
	underCare(t, a.guests, "web", guests.New(care.Held{Description: config.Description{Name: "web", Network: "tunnel"}}, nil))
	for asked, want := range map[string]string{"": "tunnel", "auto": "tunnel", "mptcp": "mptcp"} {
		m, err := a.draft(migration.Request{Guest: "web", To: "rome", Network: asked})
		if err != nil {
			t.Fatal(err)
		}
		if m.plan.Network != want {
			t.Errorf("asked for %q: %s, want %s", asked, m.plan.Network, want)
		}
		m.guest.Drop(m.plan.ID)
	}
}

// Where a guest is already it is not moved to, and who asks is told where it can go.
func TestGuestIsThereAlready(t *testing.T) {
	a := bareAgent(t, &config.Config{Host: "paris-1", Site: "paris", Peers: []config.Neighbour{{Host: "rome-1", Site: "rome"}}})
	underCare(t, a.guests, "web", guests.New(care.Held{}, nil))
	for _, to := range []string{"paris", "paris-1"} {
		_, err := a.draft(migration.Request{Guest: "web", To: to})
		refusal(t, err, "migrate guest web: it is on "+to+" already", "another site or host (known: rome-1)")
	}
}

// A next address that is named for a guest which keeps its own is refused, and not left aside.
func TestNextAddressOfOneThatKeepsItsOwn(t *testing.T) {
	a := bareAgent(t, &config.Config{Host: "paris-1", Site: "paris", Peers: []config.Neighbour{{Host: "rome-1", Site: "rome"}}})
	underCare(t, a.guests, "web", guests.New(care.Held{Description: config.Description{Name: "web"}}, nil))
	underCare(t, a.guests, "mail", guests.New(care.Held{Description: config.Description{Name: "mail", Network: "tunnel"}}, nil))
	for _, c := range []struct {
		guest, network string
		refused        bool
	}{{"web", "", false}, {"web", "drain", false}, {"web", "tunnel", true}, {"mail", "", true}, {"mail", "mptcp", false}} {
		m, err := a.draft(migration.Request{Guest: c.guest, To: "rome", Network: c.network, NextAddress: netip.MustParseAddr("10.2.1.55")})
		if said := err != nil && strings.Contains(err.Error(), "10.2.1.55") && strings.Contains(err.Error(), "--address"); said != c.refused || !said && err != nil {
			t.Errorf("guest %s, network %q: %v", c.guest, c.network, err)
		}
		if err == nil {
			m.guest.Drop(m.plan.ID)
		}
	}
}

// underCare puts a guest under care, by that name.
func underCare(t *testing.T, s *guests.Set, name string, g *guests.Guest) *guests.Guest {
	t.Helper()
	g.Remember(func(h *care.Held) { h.Description.Name = name })
	if err := s.Save(g); err != nil {
		t.Fatal(err)
	}
	return g
}

// leavesCare ends that, if there is such a guest.
func leavesCare(t *testing.T, s *guests.Set, name string) {
	t.Helper()
	if g := found(s, name); g != nil {
		if err := s.Forget(g); err != nil {
			t.Fatal(err)
		}
	}
}

// found is the guest of that name that is under care, or nil.
func found(s *guests.Set, name string) *guests.Guest {
	g, _ := s.Find(name)
	return g
}

// taken has somebody have the guest; "": nobody.
func taken(t *testing.T, g *guests.Guest, id string) {
	t.Helper()
	if id == "" {
		return
	}
	if err := g.Take(id); err != nil {
		t.Fatal(err)
	}
}

// becomes changes all that is remembered of a guest.
func becomes(g *guests.Guest, held care.Held) { g.Remember(func(h *care.Held) { *h = held }) }

// unreadable has a guest's file be one that cannot be read, as an agent starts.
func unreadable(t *testing.T, a *Agent, name string) {
	t.Helper()
	dir := a.config.StatePath("guests")
	if err := errors.Join(os.MkdirAll(dir, 0o700), os.WriteFile(filepath.Join(dir, name+".json"), nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	a.guests.Remembered()
}

// bareAgent has state, and nobody follows what it does.
func bareAgent(t *testing.T, config *config.Config) *Agent {
	config.State, config.Run = t.TempDir(), t.TempDir()
	a := &Agent{
		config: config, log: slog.New(slog.DiscardHandler), clock: time.Now,
		guests: guests.In(config.StatePath("guests")), links: map[string]*peer.Link{}, records: noRecords(config),
		feed: newFeed(), metrics: newMetrics(config), detours: detour.New("", config.Network, nil),
	}
	a.book = addresses.New(config, a.takenAddresses)
	return a
}

// noRecords are those of an agent that knows of no migration but by its history.
func noRecords(c *config.Config) *record.Store {
	return record.NewStore(c.Host, c.StatePath("history"), slog.New(slog.DiscardHandler))
}

func TestJournalWithoutAStateIsRemoved(t *testing.T) {
	a := bareAgent(t, &config.Config{Host: "paris"})
	dir := a.config.StatePath("journal")
	empty, err := journal.Create(dir, "m-00000001")
	if err != nil {
		t.Fatal(err)
	}
	empty.Close()
	broken := filepath.Join(dir, "m-00000002.journal")
	if err := os.WriteFile(broken, []byte("what is this?\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	a.resumeMigrations(t.Context(), nil)
	if left, err := journal.Unfinished(dir); err != nil || !slices.Equal(left, []string{"m-00000002"}) {
		t.Errorf("journals left: %v, %v; want the unreadable one alone", left, err)
	}
}

func TestGuestThatIsGoneIsForgotten(t *testing.T) {
	a := bareAgent(t, &config.Config{Host: "paris"})
	for _, d := range []config.Description{
		{Name: "started"},
		{Name: "received", Start: []string{"qemu"}},
		{Name: "adopted", QMP: filepath.Join(t.TempDir(), "qmp")},
	} {
		d.Memory, d.NICs = 256<<20, []config.NIC{{MAC: "52:54:00:00:01:0a"}}
		g := guests.New(care.Held{Description: d, Dir: a.guestDir(d.Name, "1")}, nil)
		if err := os.MkdirAll(g.Held().Dir, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := a.guests.Save(g); err != nil {
			t.Fatal(err)
		}
	}
	a.guests = guests.In(a.config.StatePath("guests")) // as after a restart
	lost := a.readopt(t.Context())
	if len(lost) != 3 {
		t.Errorf("lost: %v", lost)
	}
	taken(t, lost["adopted"], "m-00000001") // a migration needs to know where its disks are
	a.resumeMigrations(t.Context(), lost)
	if held, errs := a.guests.Remembered(); len(errs) > 0 || len(held) != 1 || held[0].Description.Name != "adopted" {
		t.Errorf("remembered: %+v, %v", held, errs)
	}
	lost["adopted"].Drop("m-00000001")
	a.resumeMigrations(t.Context(), lost)
	left, errs := a.guests.Remembered()
	if len(errs) > 0 || len(left) != 0 || len(a.guests.All()) != 0 {
		t.Errorf("remembered: %+v, %v", left, errs)
	}
	if dirs, _ := filepath.Glob(filepath.Join(a.config.Run, "guests", "*")); len(dirs) > 0 {
		t.Errorf("left: %v", dirs)
	}
}

// TestAnotherHostsCertificate: an agent does not begin as somebody that nobody takes it for.
func TestAnotherHostsCertificate(t *testing.T) {
	dir := t.TempDir()
	ca, err := peer.NewFleetCA(dir, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	if err := ca.Issue("rome", time.Now()); err != nil {
		t.Fatal(err)
	}
	c := &config.Config{State: t.TempDir(), Run: t.TempDir(), TLS: config.TLSFiles{
		CA: filepath.Join(dir, "ca.pem"), Cert: filepath.Join(dir, "rome.pem"), Key: filepath.Join(dir, "rome.key"),
	}}
	for host, want := range map[string]string{"rome": "", "paris": `rome.pem is host "rome"'s, and this configuration is for host paris`} {
		c.Host = host
		_, err := New(c, slog.New(slog.DiscardHandler))
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v, want %q", host, err, want)
		}
	}
}

// TestWarnings: an agent begins where a bridge is not there yet, and says so.
func TestWarnings(t *testing.T) {
	dir := t.TempDir()
	ca, err := peer.NewFleetCA(dir, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	if err := ca.Issue("paris", time.Now().AddDate(-1, 0, -1)); err != nil {
		t.Fatal(err)
	}
	var said bytes.Buffer
	a, err := New(&config.Config{Host: "paris", Fence: "/no/fence", Network: config.Network{Bridge: "no-bridge", LAN: "no-lan"}, TLS: config.TLSFiles{
		CA: filepath.Join(dir, "ca.pem"), Cert: filepath.Join(dir, "paris.pem"), Key: filepath.Join(dir, "paris.key"),
	}}, slog.New(slog.NewTextHandler(&said, nil)))
	if err != nil {
		t.Fatal(err)
	}
	a.warnOfHost()
	for _, want := range []string{"network.bridge no-bridge: no such device", "network.lan no-lan: no such device", "fence /no/fence: no such file"} {
		if n := strings.Count(said.String(), want); n != 1 {
			t.Errorf("%q was said %d times:\n%s", want, n, said.String())
		}
	}
}

// TestCertificateThatEnds: each day of a certificate's last month says when it ends, and each day after that it has.
func TestCertificateThatEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		ca, err := peer.NewFleetCA(dir, time.Now())
		if err != nil {
			t.Fatal(err)
		}
		if err := ca.Issue("paris", time.Now()); err != nil {
			t.Fatal(err)
		}
		var said bytes.Buffer
		a := bareAgent(t, &config.Config{Host: "paris"})
		a.log = slog.New(slog.NewTextHandler(&said, nil))
		if a.id, err = peer.LoadIdentity(filepath.Join(dir, "ca.pem"), filepath.Join(dir, "paris.pem"), filepath.Join(dir, "paris.key")); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		a.actors.Go(func() { a.watchCertificate(ctx) })
		time.Sleep(time.Until(a.id.Expires().Add(5*24*time.Hour + time.Hour)))
		cancel()
		a.actors.Wait()
		for words, days := range map[string]int{"ends soon": 30, "it expired at": 5} {
			if n := strings.Count(said.String(), words); n != days && n != days+1 {
				t.Errorf("%q was said %d times, want %d or one more:\n%s", words, n, days, said.String())
			}
		}
	})
}

// TestUncaredIsSaid: a guest that may run here, and of which STATE does not tell, as it is older, is named in the log
// with what to do.
func TestUncaredIsSaid(t *testing.T) {
	var said bytes.Buffer
	a := bareAgent(t, &config.Config{Host: "paris"})
	a.log = slog.New(slog.NewTextHandler(&said, nil))
	a.warnOfUncared(t.Context())
	if said.Len() > 0 {
		t.Errorf("nothing is there: %s", said.String())
	}
	dir := filepath.Join(a.config.Run, "guests", "web-3")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	ln, err := net.Listen("unix", filepath.Join(dir, "qmp.sock"))
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	a.warnOfUncared(t.Context())
	for _, want := range []string{"without care", "guest=web ", dir, "godwit guest adopt"} {
		if !strings.Contains(said.String(), want) {
			t.Errorf("%q is not said: %s", want, said.String())
		}
	}
}

// TestEndIsSaid: the log of an agent that is told to end says so, and what becomes of what it has.
func TestEndIsSaid(t *testing.T) {
	var said bytes.Buffer
	a := bareAgent(t, &config.Config{Host: "paris"})
	a.log = slog.New(slog.NewTextHandler(&said, nil))
	underCare(t, a.guests, "web", guests.New(care.Held{}, nil))
	a.outgoing = map[string]*outgoing{"m-00000001": nil}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	a.serveUntil(ctx)
	if line := said.String(); strings.Count(line, "\n") != 1 || !strings.Contains(line, "agent ends") || !strings.Contains(line, "guests=1 migrations=1") {
		t.Errorf("said: %q", line)
	}
}

// TestDirsThatCannotBeMade: an agent whose directories cannot be made says what to change.
func TestDirsThatCannotBeMade(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []config.Config{{State: filepath.Join(file, "x"), Run: t.TempDir()}, {State: t.TempDir(), Run: filepath.Join(file, "x")}} {
		_, err := (&Agent{config: &c}).takeDirs()
		if err == nil || !strings.HasPrefix(err.Error(), "mkdir "+file) || !strings.Contains(err.Error(), "must name directories that can be written") {
			t.Errorf("%v", err)
		}
	}
}

// TestOneAgentOfAState: two agents that were given the same state directory would both go on with what is there; the
// second does not begin.
func TestOneAgentOfAState(t *testing.T) {
	state := t.TempDir()
	run := func() *Agent { return &Agent{config: &config.Config{State: state, Run: t.TempDir()}} }
	unlock, err := run().takeDirs()
	if err != nil {
		t.Fatal(err)
	}
	second := run()
	if _, err := second.takeDirs(); err == nil || !strings.Contains(err.Error(), state) {
		t.Errorf("the second begins: %v", err)
	}
	unlock()
	unlock, err = second.takeDirs()
	if err != nil {
		t.Fatalf("after the first's end: %v", err)
	}
	unlock()
}
