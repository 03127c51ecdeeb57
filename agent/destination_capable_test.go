package agent

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"godwit/agent/agenttest"
	"godwit/agent/config"
	"godwit/agent/talk"
	"godwit/migration"
	"godwit/vm"
)

// TestSameRoot: a guest of an image finds the same root at the destination, or does not
// come.
func TestSameRoot(t *testing.T) {
	file := func(text string) string {
		path := filepath.Join(t.TempDir(), "root")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	host := func(root string) *Agent {
		c := config.Config{Host: "sanjose", Images: map[string]config.Image{}}
		if root != "" {
			c.Images["debian12"] = config.Image{Kernel: "k", Root: root}
		}
		return &Agent{config: &c}
	}
	d := config.Description{Name: "web", Image: "debian12"}
	mark, err := host(file("made on Monday")).config.RootMark(d)
	if err != nil || mark == "" {
		t.Fatalf("mark %q, %v", mark, err)
	}
	offer := talk.Offer{Description: d, Root: mark}
	if err := host(file("made on Monday")).sameRoot(offer); err != nil {
		t.Errorf("the same root by another name: %v", err)
	}
	for want, a := range map[string]*Agent{
		"is not the source's":      host(file("made on Friday")),
		"root of image debian12":   host(file("made on Monday!")),
		"it has no image debian12": host(""),
		"no such file":             host("/nonexistent/root"),
	} {
		if err := a.sameRoot(offer); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
	tiny := config.Description{Name: "web"}
	if mark, err := host("").config.RootMark(tiny); mark != "" || err != nil {
		t.Errorf("a guest without a root: %q, %v", mark, err)
	}
	if err := host("").sameRoot(talk.Offer{Description: tiny}); err != nil {
		t.Error(err)
	}
}

type toldFacts struct {
	facts vm.Facts
	err   error
}

func (f toldFacts) Facts(context.Context) (vm.Facts, error) { return f.facts, f.err }

// TestStartedApart: what a QEMU of another user cannot do, though it is to wait for a guest, is told by that.
func TestStartedApart(t *testing.T) {
	m := &incoming{a: &Agent{config: &config.Config{Host: "rome"}}, plan: migration.Plan{Guest: "web"}}
	denied := errors.New("export disks: Permission denied")
	agenttest.Refused(t, "apart", m.startedApart(t.Context(), toldFacts{facts: vm.Facts{Apart: true}}, denied), migration.CodeHypervisor,
		"host rome refuses guest web", "(export disks: Permission denied)", "without -run-with user=")
	for name, told := range map[string]toldFacts{"ours": {}, "not known": {vm.Facts{Apart: true}, errors.New("it has ended")}} {
		if err := m.startedApart(t.Context(), told, denied); !errors.Is(err, denied) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestUnknownSource: a host that its destination's configuration does not name hears so in the check, and not from its
// tunnel.
func TestUnknownSource(t *testing.T) {
	a := between(t)
	a.config.Peers = append(a.config.Peers, config.Neighbour{Host: "berlin-2", Site: "berlin"})
	p := goodPreparation()
	p.Plan.From = "berlin"
	agenttest.Refused(t, "not known", a.capable(t.Context(), talk.Offer{Plan: p.Plan, Description: p.Description}), migration.CodePeer, "host rome refuses guest web: its configuration knows no host berlin; add it to peers")
}

// TestNoBridge: a host whose bridge or its port is not there takes no guest, as its log says, and says by which key.
func TestNoBridge(t *testing.T) {
	a := between(t)
	a.config.Network.Bridge, a.config.Network.LAN = "no-bridge", "lo"
	p := goodPreparation()
	agenttest.Refused(t, "no bridge", a.capable(t.Context(), talk.Offer{Plan: p.Plan, Description: p.Description}), migration.CodePath, "host rome refuses guest web", "network.bridge no-bridge: no such device; mend that")
}

// TestUnwritableDestination: a host that cannot write anything down takes no guest, and says what to do.
func TestUnwritableDestination(t *testing.T) {
	before := unwritable
	defer func() { unwritable = before }()
	unwritable = func(*config.Config) []string {
		return []string{"state /s: its file system can only be read; mount it for writing"}
	}
	a := between(t)
	p := goodPreparation()
	agenttest.Refused(t, "read-only", a.capable(t.Context(), talk.Offer{Plan: p.Plan, Description: p.Description}), migration.CodeCapacity, "host rome refuses guest web", "can only be read; mount it for writing")
}
