package agent

import (
	"path/filepath"
	"strings"
	"testing"

	"godwit/agent/config"
	"godwit/agent/statefile"
)

// TestEndingsOfLongNames: that a detour has ended is kept, however long the hosts' names in its id are: each in a file
// of its own, whose name is not longer than a file's may be.
func TestEndingsOfLongNames(t *testing.T) {
	a := &Agent{config: &config.Config{State: t.TempDir()}}
	paths := map[string]bool{}
	for _, host := range []string{"dallas", strings.Repeat("b", 250), strings.Repeat("b", 249) + "c"} {
		e := ending{Detour: "m-00000001-" + strings.Repeat("a", 250) + "-" + host, Peer: "paris"}
		if host == "dallas" {
			e.Detour = "m-00000001-dallas"
		}
		if err := statefile.Write(e.path(a), e); err != nil {
			t.Errorf("%.40s…: %v", e.Detour, err)
		}
		paths[e.path(a)] = true
	}
	if files, err := statefile.Files(a.config.StatePath("ended")); err != nil || len(files) != 3 || len(paths) != 3 {
		t.Errorf("files %v, %v, of paths %v", files, err, paths)
	}
	if short := (ending{Detour: "m-00000001-dallas"}).path(a); filepath.Base(short) != "m-00000001-dallas.json" {
		t.Errorf("one of a short name is kept in %s, where an older release does not look for it", short)
	}
}
