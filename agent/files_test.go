package agent

import (
	"bytes"
	"errors"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"godwit/agent/agenttest"
	"godwit/agent/care"
	"godwit/agent/config"
	"godwit/agent/detour"
	"godwit/agent/ends"
	"godwit/agent/guests"
	"godwit/agent/record"
	"godwit/agent/statefile"
	"godwit/agent/talk"
	"godwit/agent/written"
	"godwit/internal/clock"
	"godwit/migration"
	"godwit/netstate"
	"godwit/netstate/tunnel"
)

// goodHeld is a guest as an agent of these directories remembers it.
func goodHeld(dir string) care.Held {
	d := goodPreparation().Description
	return care.Held{Description: d, Dir: filepath.Join(dir, "guests", "web-3"), Number: 1, Taps: []string{"gwt1a", "gwt1b"}, Epoch: 3}
}

// FuzzFiles: whatever an agent's own files say, they are refused in one line, or what they
// name are paths, devices and indices that may be used.
func FuzzFiles(f *testing.F) {
	for _, seed := range []string{
		`{"description":{"name":"web","memory":268435456,"nics":[{"mac":"52:54:00:00:01:0a"}]},"dir":"/run/godwit/guests/web-3","number":1,"taps":["gwt1a"],"addresses":[{"prefix":"10.1.1.20/24"}]}`,
		`{"description":{"name":"web","memory":268435456,"nics":[{"mac":"52:54:00:00:01:0a"}]},"dir":"/etc/guests/web-3/../..","active":7}`,
		`{"m-0000000a":{"id":"m-0000000a","guest":"web","peer":"rome","tunnel":{"name":"gwt-0000000a","dir":"/run/godwit/tunnels"},"visiting":[{"Addr":"10.1.1.20","Tap":"gwt1a"}]}}`,
		`{"m-0000000a":null}`,
		`{"m-0000000a":{"id":"m-0000000a","guest":"web","tunnel":{"name":"../x","dir":"/run/godwit/tunnels"}}}`,
		`{"id":"m-00000001","outcome":"completed","old":[{"prefix":"10.1.1.20/24"}],"survival":{"total":-1}}`,
		`{"migration":"../../x","host":"rome","undo":{"code":"x","epoch":18446744073709551615}}`,
		`null`, `[]`, `{"a":1e999}`,
	} {
		f.Add([]byte(seed))
	}
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, data []byte) {
		path := filepath.Join(dir, "file.json")
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		read := func(into any) bool {
			err := statefile.Read(path, into)
			if err != nil && (!errors.Is(err, statefile.ErrUnread) || strings.Contains(err.Error(), "\n")) {
				t.Fatalf("%q: want one line that says what to do", err)
			}
			return err == nil
		}
		var h care.Held
		if read(&h) {
			g := guests.New(h, nil)
			g.ActiveTap()
			_ = h.Description.NICs[h.Active].Hardware()
			if rel, err := filepath.Rel(filepath.Dir(h.Dir), h.Dir); err != nil || strings.ContainsAny(rel, "/") || !strings.HasPrefix(rel, h.Description.Name) || !strings.HasSuffix(filepath.Dir(h.Dir), "/guests") {
				t.Fatalf("directory %q of guest %s", h.Dir, h.Description.Name)
			}
			migration.Bare(h.Addresses)
		}
		if s, err := detour.Load(path, config.Network{Bridge: "br0", LAN: "lan0"}); err == nil {
			for _, d := range s.List("") {
				_ = migrationOf(d.ID)
				if strings.Contains(d.Tunnel.Name+d.Guest, "/") || strings.Contains(d.ID, "/") {
					t.Fatalf("%+v", d)
				}
			}
		}
		var rep record.Report
		if read(&rep) {
			migration.Bare(append(rep.Old, rep.Next...))
			rep.Sane()
		}
		var taken Taken
		if read(&taken) && strings.Contains(taken.Migration, "/") {
			t.Fatal(taken.Migration)
		}
	})
}

// TestGuestThatCannotBeRead: of one whose file is damaged everything stays as it is: its
// directory, its detours, a migration of it. The others are found; nobody gets its name.
func TestGuestThatCannotBeRead(t *testing.T) {
	a := bareAgent(t, &config.Config{Host: "rome", Network: config.Network{Bridge: "br0"}, Peers: []config.Neighbour{{Host: "paris", Site: "paris"}}})
	var said bytes.Buffer
	a.log = slog.New(slog.NewTextHandler(&said, nil))
	a.records, a.outgoing, a.incoming = noRecords(a.config), map[string]*outgoing{}, map[string]*incoming{}
	good := goodHeld(a.config.Run)
	good.Description.Name, good.Dir = "db", a.guestDir("db", "1")
	dir := a.guestDir("web", "3")
	const half = `{"description":{"name":"web"`
	for _, err := range []error{
		os.MkdirAll(dir, 0o700), statefile.Write(a.config.StatePath("guests", "db.json"), good), os.WriteFile(a.config.StatePath("guests", "web.json"), []byte(half), 0o600),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	var err error
	if a.detours, err = detour.Load(a.config.StatePath("detours.json"), a.config.Network); err != nil {
		t.Fatal(err)
	}
	d := detour.Detour{
		ID: "m-00000001", Guest: "web", Peer: "paris", Leased: true, Until: clock.Now().Add(config.DefaultLease), Up: clock.Now(),
		Tunnel: tunnel.Config{Name: "gwt-00000001", Dir: ends.Dir(a.config), Lease: clock.Now().Add(2 * config.DefaultLease)}, Visiting: []netstate.Visiting{{Addr: oursHere, Tunnel: "gwt-00000001"}},
		Away: []netstate.Away{{Addr: theirsHere, Tunnel: "gwt-00000001"}},
	}
	place(a, &d)
	lost := a.readopt(t.Context())
	if len(lost) != 1 || lost["db"] == nil || strings.Count(said.String(), "left as it is") != 1 || !strings.Contains(said.String(), "web.json") {
		t.Errorf("lost %v; said: %s", lost, said.String())
	}
	log := journalOf(t, a, "m-00000002", written.Source{Side: "source", Plan: migration.Plan{ID: "m-00000002", Guest: "web", From: "rome", To: "paris"}, State: migration.Source{Course: migration.Forward, At: 2}})
	a.resumeMigrations(t.Context(), lost)
	if !strings.Contains(a.unread["m-00000002"], "left as it is") || len(a.outgoing) > 0 {
		t.Errorf("its migration is gone on with: %v, %v", a.unread, a.outgoing)
	}
	if err := a.lookAfter(t.Context(), d); err != nil {
		t.Error(err)
	}
	a.restoreDetours(t.Context())
	if _, kept := a.detours.Get(d.ID); !kept || strings.Contains(said.String(), "restore detour") {
		t.Errorf("its detour was ended, or made anew: %s", said.String())
	}
	p := goodPreparation()
	if _, err := a.guests.Find("web"); err == nil {
		t.Error("it was found")
	}
	agenttest.Refused(t, "another of that name", a.capable(t.Context(), talk.Offer{Plan: p.Plan, Description: p.Description}), migration.CodeInternal, "left as it is", "web.json", "mend")
	if left, err := os.ReadFile(a.config.StatePath("guests", "web.json")); err != nil || string(left) != half {
		t.Errorf("its file: %q, %v", left, err)
	}
	for _, path := range []string{dir, log} {
		if _, err := os.Stat(path); err != nil {
			t.Error(err)
		}
	}
}

// TestGuestsThatCannotBeListed: where it is not known which guests an earlier agent had, as on storage that fails, none
// is taken for gone: what leads to them stays, and nobody gets the name of one.
func TestGuestsThatCannotBeListed(t *testing.T) {
	a := bareAgent(t, &config.Config{Host: "rome", Network: config.Network{V4: netip.MustParsePrefix("10.1.1.0/24")}})
	var said strings.Builder
	a.log = slog.New(slog.NewTextHandler(&said, nil))
	a.ctx, a.outgoing, a.incoming = t.Context(), map[string]*outgoing{}, map[string]*incoming{}
	if err := os.WriteFile(a.config.StatePath("guests"), nil, 0o600); err != nil { // a file where their directory should be
		t.Fatal(err)
	}
	var err error
	if a.detours, err = detour.Load(a.config.StatePath("detours.json"), a.config.Network); err != nil {
		t.Fatal(err)
	}
	d := detour.Detour{
		ID: "m-00000001", Guest: "web", Peer: "paris", Leased: true, Until: clock.Now().Add(config.DefaultLease), Up: clock.Now(),
		Visiting: []netstate.Visiting{{Addr: netip.MustParseAddr("10.2.1.20")}},
	}
	place(a, &d)
	if lost := a.readopt(t.Context()); len(lost) > 0 || !strings.Contains(said.String(), "which guests there are is not known") {
		t.Errorf("lost %v; said: %s", lost, said.String())
	}
	if err := a.lookAfter(t.Context(), d); err != nil {
		t.Error(err)
	}
	if _, kept := a.detours.Get(d.ID); !kept {
		t.Error("what leads to a guest was ended, which may be here")
	}
	p := goodPreparation()
	agenttest.Refused(t, "another of that name", a.capable(t.Context(), talk.Offer{Plan: p.Plan, Description: p.Description}), migration.CodeInternal, "which guests there are", "mend")
}

// TestHistoryThatCannotBeRead: nothing is concluded from it, neither that a migration never
// was here nor how it ended.
func TestHistoryThatCannotBeRead(t *testing.T) {
	a := bareAgent(t, &config.Config{Host: "rome", Peers: []config.Neighbour{{Host: "paris", Site: "paris", Uplinks: []config.Uplink{{Address: netip.MustParseAddr("192.0.2.1")}}}}})
	a.records, a.incoming, a.abortedEarly = noRecords(a.config), map[string]*incoming{}, map[string]earlyAbort{}
	p := goodPreparation()
	if err := os.MkdirAll(a.config.StatePath("history"), 0o700); err != nil {
		t.Fatal(err)
	}
	path := a.config.StatePath("history", p.Plan.ID+"-destination.json")
	if err := os.WriteFile(path, []byte(`{"id":"m-0000`), 0o600); err != nil {
		t.Fatal(err)
	}
	ask := func(body any) func() (any, error) {
		return func() (any, error) { return a.peerAbort(callFrom(t, "paris", p.Plan.ID, body)) }
	}
	for name, call := range map[string]func() (any, error){
		"it was taken back": ask(talk.Undo{Epoch: 9, Released: true}),
		"release":           func() (any, error) { return a.peerRelease(callFrom(t, "paris", p.Plan.ID, p.Plan)) },
		"landing":           func() (any, error) { return a.peerLanding(callFrom(t, "paris", p.Plan.ID, nil)) },
		"prepare":           func() (any, error) { return a.incomingFor(p) },
	} {
		if answer, err := call(); !errors.Is(err, statefile.ErrUnread) {
			t.Errorf("%s: answered %+v, %v; want that it cannot be read", name, answer, err)
		}
	}
	if len(a.incoming) > 0 {
		t.Error("something was begun")
	}
}
