package agent

import (
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"godwit/agent/journal"
	"godwit/agent/peer"
	"godwit/migration"
)

const wholeDescription = `# taken from production
name: web
memory: 256MiB
nics:
  - {mac: "52:54:00:00:01:0a", tap: tap-web-a}
  - {mac: "52:54:00:00:01:0b", tap: tap-web-b}
qmp: /run/web/qmp.sock
addresses:
  - {prefix: 10.1.1.20/24, gateway: 10.1.1.1}
start: [qemu-system-x86_64, -S]
network: tunnel
`

func TestLoadDescription(t *testing.T) {
	path := filepath.Join(t.TempDir(), "web.yaml")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(wholeDescription)
	d, err := LoadDescription(path)
	if err != nil || d.check() != nil || d.checkAdopted() != nil {
		t.Fatal(err, d.check(), d.checkAdopted())
	}
	if d.Memory != 256<<20 || d.NICs[1].Tap != "tap-web-b" || d.Addresses[0].Prefix != netip.MustParsePrefix("10.1.1.20/24") ||
		!slices.Equal(d.Start, []string{"qemu-system-x86_64", "-S"}) || d.Network != "tunnel" {
		t.Errorf("%+v", d)
	}
	for _, c := range []struct{ name, old, new, want string }{
		{"plain bytes", "256MiB", "268435456", ""},
		{"quoted", "256MiB", `"0.25GiB"`, ""},
		{"no such unit", "256MiB", "256QB", `:3:9: memory "256QB": unknown unit; allowed: a plain number, or a size with its unit`},
		{"unknown key", "qmp:", "qpm:", ":7:1: unknown field \"qpm\""},
		{"unknown key of a NIC", "tap: tap-web-b", "tab: tap-web-b", ":6:32: unknown field"},
		{"a list for a word", "/run/web/qmp.sock", "[a, b]", ":7:6: "},
		{"an address that is none", "10.1.1.20/24", "10.1.1.20", ":9:14: "},
		{"not yaml", "start: [", "start: [[", ":11:1: "},
		{"twice", "network: tunnel", "name: web", ":11:1: "},
	} {
		t.Run(c.name, func(t *testing.T) {
			if !strings.Contains(wholeDescription, c.old) {
				t.Fatal("no such text")
			}
			write(strings.Replace(wholeDescription, c.old, c.new, 1))
			d, err := LoadDescription(path)
			if c.want == "" {
				if err != nil || d.Memory != 256<<20 {
					t.Errorf("%d, %v", d.Memory, err)
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), path+c.want) || strings.Contains(err.Error(), "\n") {
				t.Errorf("%v: want one line with %q", err, path+c.want)
			}
		})
	}
}

func TestDescriptionOfWhatIsStartedOrAdopted(t *testing.T) {
	taps := func(taps ...string) Description {
		d := Description{Name: "web", QMP: "/q"}
		for _, tap := range taps {
			d.NICs = append(d.NICs, NIC{MAC: "52:54:00:00:00:0a", Tap: tap})
		}
		return d
	}
	refusal(t, taps("a", "").checkAdopted(), "nics[1]", "name the tap")
	refusal(t, taps("a", "a").checkAdopted(), "both NICs have the tap a")
	refusal(t, taps("sixteen-letters-").checkAdopted(), "not the name of a device")
	refusal(t, Description{Name: "web", QMP: "/q", Image: "tiny"}.checkAdopted(), "drop them, or qmp")
	refusal(t, Description{Name: "web", Image: "huge"}.checkStarted([]string{tinyImage}), `image "huge" is unknown; allowed: tiny`)
	refusal(t, Description{Name: "web", Start: []string{"qemu"}}.checkStarted(nil), "qmp is missing")
	for _, d := range []Description{{Name: "web"}, {Name: "web", Image: "tiny"}} {
		if err := d.checkStarted(nil); err != nil {
			t.Error(err)
		}
	}
}

func TestElsewhereLeavesTheOriginalAlone(t *testing.T) {
	d := Description{Name: "web", QMP: "/q", Channel: "/c", NICs: []NIC{{MAC: "m", Tap: "t"}}, Start: []string{"x"}}
	far := d.elsewhere()
	if far.QMP != "" || far.Channel != "" || far.NICs[0] != (NIC{MAC: "m"}) || len(far.Start) != 1 {
		t.Errorf("%+v", far)
	}
	if d.QMP != "/q" || d.NICs[0].Tap != "t" {
		t.Errorf("the original changed: %+v", d)
	}
}

func TestDescriptionsNetworkIsTheDefault(t *testing.T) {
	config, _, err := load(t, wholeConfig)
	if err != nil {
		t.Fatal(err)
	}
	a := bareAgent(t, config)
	a.guests.byName["web"] = &Guest{Held: Held{Description: Description{Name: "web", Network: "tunnel"}}}
	for asked, want := range map[string]string{"": "tunnel", "auto": "tunnel", "mptcp": "mptcp"} {
		m, err := a.draft(migration.Request{Guest: "web", To: "rome", Network: asked})
		if err != nil {
			t.Fatal(err)
		}
		if m.plan.Network != want {
			t.Errorf("asked for %q: %s, want %s", asked, m.plan.Network, want)
		}
		m.guest.drop(m.plan.ID)
	}
}

// bareAgent has state and nothing else.
func bareAgent(t *testing.T, config *Config) *Agent {
	config.State, config.Run = t.TempDir(), t.TempDir()
	return &Agent{
		config: config, log: slog.New(slog.DiscardHandler), clock: time.Now,
		guests: &guests{dir: config.dir("guests"), byName: map[string]*Guest{}}, links: map[string]*peer.Link{},
	}
}

func TestJournalWithoutAStateIsRemoved(t *testing.T) {
	a := bareAgent(t, &Config{Host: "paris"})
	dir := a.config.dir("journal")
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
	a := bareAgent(t, &Config{Host: "paris"})
	for _, d := range []Description{
		{Name: "started"},
		{Name: "received", Start: []string{"qemu"}},
		{Name: "adopted", QMP: filepath.Join(t.TempDir(), "qmp")},
	} {
		d.Memory, d.NICs = 256<<20, []NIC{{MAC: "52:54:00:00:01:0a"}}
		g := &Guest{Held: Held{Description: d, Dir: a.guestDir(d.Name, "1")}}
		if err := os.MkdirAll(g.Held.Dir, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := a.guests.keep(g); err != nil {
			t.Fatal(err)
		}
		delete(a.guests.byName, d.Name) // as after a restart
	}
	lost := a.readopt(t.Context())
	if len(lost) != 3 {
		t.Errorf("lost: %v", lost)
	}
	lost["adopted"].busy = "m-00000001" // a migration needs to know where its disks are
	a.resumeMigrations(t.Context(), lost)
	if held, errs := a.guests.remembered(); len(errs) > 0 || len(held) != 1 || held[0].Description.Name != "adopted" {
		t.Errorf("remembered: %+v, %v", held, errs)
	}
	lost["adopted"].busy = ""
	a.resumeMigrations(t.Context(), lost)
	left, errs := a.guests.remembered()
	if len(errs) > 0 || len(left) != 0 || len(a.guests.all()) != 0 {
		t.Errorf("remembered: %+v, %v", left, errs)
	}
	if dirs, _ := filepath.Glob(filepath.Join(a.config.Run, "guests", "*")); len(dirs) > 0 {
		t.Errorf("left: %v", dirs)
	}
}

func TestAgentOfADescription(t *testing.T) {
	d := Description{Name: "web", Memory: 1 << 30, NICs: []NIC{{MAC: "52:54:00:00:00:0a"}}, Agent: "ssh"}
	refusal(t, d.check(), `agent "ssh" is unknown; allowed: godwit, qga`)
	for agent, port := range map[string]string{"": "org.godwit.guest.0", "godwit": "org.godwit.guest.0", "qga": "org.qemu.guest_agent.0"} {
		d.Agent = agent
		if err := d.check(); err != nil || d.port() != port {
			t.Errorf("agent %q: %v, port %s; want %s", agent, err, d.port(), port)
		}
	}
}

// TestImages: a host starts guests of the images that it has.
func TestImages(t *testing.T) {
	c := Config{Image: Image{Kernel: "k"}, Images: map[string]Image{"debian12": {Kernel: "k12", Root: "r"}}}
	if c.image("").Kernel != "k" || c.image("tiny").Kernel != "k" || c.image("debian12").Root != "r" || c.image("huge").Kernel != "" {
		t.Errorf("images: %+v", c)
	}
	if got := strings.Join(c.imageNames(), " "); got != "tiny debian12" {
		t.Errorf("names: %s", got)
	}
	if err := (Description{Name: "web", Image: "debian12"}).checkStarted(c.imageNames()); err != nil {
		t.Error(err)
	}
}
