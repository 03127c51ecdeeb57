package config

import (
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"
)

// wrongFile is what an error begins with: the file, and for what it says wrongly the place.
var wrongFile = regexp.MustCompile(`^read (?:agent configuration|description): F(?::(\d+):(\d+))?: .`)

// FuzzFiles: what is wrong with a file is said in one short line that can be shown, at a place that the file has, and a file
// that is taken says of a place what it said.
func FuzzFiles(f *testing.F) {
	f.Add(wholeConfig)
	for _, c := range ugly {
		f.Add(c.text)
	}
	path := filepath.Join(f.TempDir(), "agent.yaml")
	f.Fuzz(func(t *testing.T, text string) {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		_, cerr := Load(path)
		_, derr := LoadDescription(path)
		for _, err := range []error{cerr, derr} {
			if err == nil {
				if !utf8.ValidString(text) {
					t.Errorf("took what is no text: %q", text)
				}
				continue
			}
			checkShown(t, text, strings.Replace(err.Error(), path, "F", 1))
		}
	})
}

func checkShown(t *testing.T, text, said string) {
	t.Helper()
	m := wrongFile.FindStringSubmatch(said)
	if m == nil || len(said) > 4096 || strings.ContainsFunc(said, func(r rune) bool { return !unicode.IsPrint(r) }) {
		t.Errorf("%q: %.5000q", text, said)
		return
	}
	lines := 1 + strings.Count(text, "\n") + strings.Count(text, "\r") - strings.Count(text, "\r\n")
	if line, err := strconv.Atoi(m[1]); err == nil && (line < 1 || line > lines) {
		t.Errorf("%q: no such line: %s", text, said)
	}
}

// ugly are files that nobody means, and what is said of them.
var ugly = []struct{ text, want string }{
	{wholeConfig + "\"\\e[31m\\n\": 1\n", `F:22:1: unknown field " [31m "`},
	{wholeConfig + "subnet_agent: \"\\e[31m\\n\"\n", "F:22:15: subnet_agent  [31m : no host of peers has that name"},
	{strings.ReplaceAll("# of\n# Windows\n"+wholeConfig, "\n", "\r\n") + "fnece: x\r\n", `F:24:1: unknown field "fnece"`},
	{wholeConfig + "fence: /opt/caf\xe9\n", "F:22:16: not text in UTF-8"},
	{wholeConfig + "fence: /opt/café\xe9\n", "F:22:17: not text in UTF-8"},
	{strings.Replace(wholeConfig, "paris-1", "[paris-1]", 1), "F:1:7: host: not a text"},
	{strings.Replace(wholeConfig, "paris-1", "{paris-1: x}", 1), "F:1:7: host: not a text"},
	{"keep_memory: 1.5\n" + wholeConfig, `F:1:14: keep_memory "1.5": number without its unit; allowed: a plain number, or a size`},
	{strings.Replace(wholeConfig, "rate: 350000000", "rate: .nan", 1), "F:12:48: rate: too large, or negative"},
	{strings.Replace(wholeConfig, "rate: 350000000", "rate: 3.5", 1), `F:12:48: rate "3.5": number without its unit`},
	{wholeConfig + strings.Repeat("k", 5000) + ": 1\n", `F:22:1: unknown field "kkkk`},
	{"peers: &p [*p]\n", "F:1:11: "},
	{"&a {host: *a}\n", "F:1:4: "},
	{"a: &a [*a, *a]\nb: &b [*a, *a]\nc: [*b, *b]\n", ": unknown field"},
	{strings.Repeat("[", 100), "F:1:33: nested too deeply; allowed: at most 32 levels"},
	{strings.Repeat("- ", 100) + "x\n", "F:1:65: nested too deeply"},
	{strings.Repeat("host: paris-1\n", 5000), "F:4097:1: too many keys in one map; allowed: at most 4096"},
	{"peers:\n" + strings.Repeat("-\n", 5000), "F:4098:1: too many entries without a value"},
	{strings.Repeat("#", 1<<20+1), "F:1:1: the file is too long; allowed: at most 1048576 bytes"},
}

// TestUglyFiles: what is said of a file that nobody means is fit to be shown, and its place is.
func TestUglyFiles(t *testing.T) {
	for _, c := range ugly {
		_, path, err := load(t, c.text)
		if err == nil {
			t.Errorf("%.300q was taken", c.text)
			continue
		}
		said := strings.Replace(err.Error(), path, "F", 1)
		if checkShown(t, c.text, said); !strings.Contains(said, c.want) {
			t.Errorf("%.300q: %s; want %s", c.text, said, c.want)
		}
	}
}
