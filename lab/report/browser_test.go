package report

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"html"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"godwit/internal/need"
)

//go:embed testdata/measure.js
var measure string

// rendered is what a browser made of one page.
type rendered struct {
	Errors, Overlap, Outside, Fetched []string
	Names                             int     // texts in its pictures
	Readout                           string  // beside the pointer in the middle of the first picture
	Stays                             bool    // that, once the pointer has left
	Wider                             float64 // than the window, px
}

// TestInABrowser: Chromium runs the page's script, asks nobody for anything, and finds no text of a picture over another or
// out of its frame; on a telephone nothing but a picture or a table is wider than the window, each in a frame of its own.
func TestInABrowser(t *testing.T) {
	need.Root(t) // for a network namespace with nothing in it
	need.Program(t, "chromium")
	pages := map[string]*Report{"good": sample(), "bad": sampleBad(), "lanes": sampleLanes(), "refused": sampleRefused(), "long": sampleLong(t)}
	var outer strings.Builder
	outer.WriteString(`<!DOCTYPE html><meta charset="utf-8"><pre id="seen"></pre><script>
const seen = {};
window.tell = (name, what) => { seen[name] = what; document.getElementById("seen").textContent = JSON.stringify(seen); };
</script>`)
	for name, r := range pages {
		page := strings.Replace(pageOf(t, r), "<head>", "<head><script>"+measure+"</script>", 1)
		for _, width := range []int{1300, 380} {
			fmt.Fprintf(&outer, `<iframe name="%s %d" style="width: %dpx; height: 900px" srcdoc="%s"></iframe>`, name, width, width, html.EscapeString(page))
		}
	}
	seen := browse(t, outer.String())
	if len(seen) != 2*len(pages) {
		t.Fatalf("%d pages were loaded, want %d", len(seen), 2*len(pages))
	}
	for name, s := range seen {
		if len(s.Errors)+len(s.Overlap)+len(s.Outside)+len(s.Fetched) > 0 || s.Wider > 0 {
			t.Errorf("%s: errors %q, over each other %q, out of the picture %q, fetched %q, %v px wider than its window",
				name, s.Errors, s.Overlap, s.Outside, s.Fetched, s.Wider)
		}
		if s.Names < 20 || !strings.Contains(s.Readout, " s\n") || !strings.Contains(s.Readout, "gap") || s.Stays {
			t.Errorf("%s: %d texts, the pointer shows %q, which stays: %v", name, s.Names, s.Readout, s.Stays)
		}
	}
}

// sampleRefused is sample with moves that were refused, one just after another, and one that was aborted just before
// the next.
func sampleRefused() *Report {
	r := sample()
	ended := func(outcome Outcome, at float64, ends ...float64) Migration {
		m := sampleMove("sanjose", "dublin", at, append(ends, make([]float64, 8-len(ends))...), 41, 60)
		m.Outcome, m.SwitchedS, m.TotalS = outcome, nil, new(ends[len(ends)-1])
		m.Phases = m.Phases[:len(ends)-1]
		return m
	}
	r.Migrations = []Migration{
		r.Migrations[0], ended(Refused, 13, 0, 0.01), ended(Refused, 13.2, 0, 0.01), ended(Refused, 13.4, 0, 0.01),
		ended(Aborted, 15, 0, 0.1, 0.6, 0.61, 5.8), r.Migrations[1],
	}
	return r
}

// sampleLong is sampleLanes with names as long as a scenario may have them.
func sampleLong(t *testing.T) *Report {
	t.Helper()
	var b bytes.Buffer
	if err := sampleLanes().Write(&b); err != nil {
		t.Fatal(err)
	}
	names := regexp.MustCompile(`\b(web|montreal|sanjose|dublin|ticks|download|upload|requests|phone|public|private)\b`)
	long := names.ReplaceAllStringFunc(b.String(), func(name string) string {
		return (name + "-of-the-Long-Name-0123456789-abcdefghijkl")[:40]
	})
	r, err := Read(strings.NewReader(long))
	if err != nil {
		t.Fatal(err)
	}
	r.Scenario = "long"
	return r
}

// browse has Chromium load a page, and returns what the pages within it told of themselves.
func browse(t *testing.T, page string) (seen map[string]rendered) {
	t.Helper()
	dir := t.TempDir()
	file := filepath.Join(dir, "outer.html")
	if err := os.WriteFile(file, []byte(page), 0o644); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "chromium", "--headless", "--no-sandbox", "--disable-gpu", "--disable-breakpad",
		"--user-data-dir="+filepath.Join(dir, "profile"), "--virtual-time-budget=10000", "--dump-dom", "file://"+file)
	cmd.Env = append(os.Environ(), "HOME="+dir)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Cloneflags: syscall.CLONE_NEWNET}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = 10 * time.Second
	dom, err := cmd.Output()
	told := regexp.MustCompile(`(?s)<pre id="seen">(.*?)</pre>`).FindSubmatch(dom)
	if err != nil || told == nil {
		t.Fatalf("chromium: %v: %s", err, stderr.Bytes())
	}
	if err := json.Unmarshal([]byte(html.UnescapeString(string(told[1]))), &seen); err != nil {
		t.Fatalf("%v: %s", err, told[1])
	}
	return seen
}
