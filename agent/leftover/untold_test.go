package leftover

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"godwit/agent/config"
)

// TestUntold: words to a host that was taken out of the fleet are named, and those whose loss brings no guest to run
// twice are taken away. What a host of the fleet has not heard yet is left to the agent. Another host of the site whose
// name it had is not that host.
func TestUntold(t *testing.T) {
	c := &config.Config{State: t.TempDir(), Peers: []config.Neighbour{{Host: "rome"}, {Host: "paris-2", Site: "paris"}}}
	files := map[string]string{
		"ended/m-00000001-paris.json": `{"detour": "m-00000001-paris", "peer": "paris", "ended": {}}`,
		"ended/m-00000002-rome.json":  `{"detour": "m-00000002-rome", "peer": "rome", "ended": {}}`,
		"ended/m-00000003.json":       `{`,
		"taken/m-00000004.json":       `{"migration": "m-00000004", "host": "paris", "undo": {"epoch": 3}}`,
		"taken/m-00000005.json":       `{"migration": "m-00000005", "host": "rome", "undo": {"epoch": 3}}`,
	}
	for name, text := range files {
		path := filepath.Join(c.State, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(text), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	things, err := untolds(t.Context(), c, nil)
	if err != nil || len(things) != 2 {
		t.Fatalf("%v, %v", things, err)
	}
	ended, taken := things[0], things[1]
	if !ended.Left() || !strings.Contains(ended.String(), "m-00000001-paris.json for host paris") {
		t.Errorf("%s", ended)
	}
	if taken.Left() || taken.Migration != "m-00000004" || !strings.Contains(taken.String(), "name that host under peers again") {
		t.Errorf("%s", taken)
	}
	if err := ended.remove(t.Context()); err != nil {
		t.Error(err)
	}
	if things, err := untolds(t.Context(), c, nil); err != nil || len(things) != 1 {
		t.Errorf("after that: %v, %v", things, err)
	}
}
