package agent

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
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
		c := Config{Host: "sanjose", Images: map[string]Image{}}
		if root != "" {
			c.Images["debian12"] = Image{Kernel: "k", Root: root}
		}
		return &Agent{config: &c}
	}
	d := Description{Name: "web", Image: "debian12"}
	mark, err := host(file("made on Monday")).config.rootMark(d)
	if err != nil || mark == "" {
		t.Fatalf("mark %q, %v", mark, err)
	}
	offer := Offer{Description: d, Root: mark}
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
	tiny := Description{Name: "web"}
	if mark, err := host("").config.rootMark(tiny); mark != "" || err != nil {
		t.Errorf("a guest without a root: %q, %v", mark, err)
	}
	if err := host("").sameRoot(Offer{Description: tiny}); err != nil {
		t.Error(err)
	}
}
