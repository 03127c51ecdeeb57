package need

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

const scripts = "../../scripts/"

// TestSkipsAreCounted: `make test` takes a test that skips for one that failed, but for those that may, which need not.
func TestSkipsAreCounted(t *testing.T) {
	allowed := filepath.Join(t.TempDir(), "may-skip")
	if err := os.WriteFile(allowed, []byte("# those of lab\n\nlab TestByKVM\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ ends, test, says, want string }{
		{"skip", "TestByKVM", "a_test.go:3: KVM does not work here", "0 0 1"},
		{"skip", "TestByKVM/lanes", "a_test.go:3: KVM does not work here", "0 0 1"},
		{"pass", "TestByKVM", "", "1 0 0"},
		{"skip", "TestByKVM2", "a_test.go:3: KVM does not work here", "0 1 0"},
		{"skip", "TestOther", "a_test.go:3: needs it", "0 1 0"},
		{"skip", "TestOther", "a_test.go:3: GODWIT_GUESTS=off: no guests in this run", "0 0 1"},
	} {
		dir := t.TempDir()
		about := fmt.Sprintf(`"Package":"godwit/lab","Test":%q`, c.test)
		cmd := exec.Command("awk", "-v", "allowed="+allowed, "-v", "counts="+dir+"/counts", "-v", "failures="+dir+"/failures", "-f", scripts+"count-tests.awk")
		cmd.Stdin = strings.NewReader(fmt.Sprintf(`{"Action":"output",%s,"Output":"    %s\n"}`+"\n"+`{"Action":%q,%s}`+"\n", about, c.says, c.ends, about))
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		counts, err := os.ReadFile(dir + "/counts")
		failures, ferr := os.ReadFile(dir + "/failures")
		if err != nil || ferr != nil || strings.TrimSpace(string(counts)) != c.want {
			t.Errorf("%+v: passed, failed, skipped: %s %v %v\n%s", c, counts, err, ferr, out)
		}
		if failed := c.want == "0 1 0"; failed != strings.Contains(string(failures), "failed: "+c.test+" (lab)") || failed != strings.Contains(string(out), "--- FAIL") {
			t.Errorf("%+v: said to have failed are %q, and printed is\n%s", c, failures, out)
		}
	}
}

// TestThoseThatMaySkipAreThere: a test that is called otherwise now, or stands elsewhere, is not allowed to skip any more.
func TestThoseThatMaySkipAreThere(t *testing.T) {
	list, err := os.ReadFile(scripts + "may-skip")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(list)) {
		words := strings.Fields(line)
		if len(words) == 0 || words[0] == "#" {
			continue
		}
		var all strings.Builder
		files, _ := filepath.Glob("../../" + words[0] + "/*_test.go")
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			all.Write(text)
		}
		if len(words) != 2 || !strings.Contains(all.String(), "\nfunc "+words[1]+"(t *testing.T)") {
			t.Errorf("%q: there is no such test", strings.TrimSpace(line))
		}
	}
}
