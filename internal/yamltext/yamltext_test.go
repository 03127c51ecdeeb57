package yamltext

import (
	"fmt"
	"strings"
	"testing"
)

// TestText: what costs a parser too much is named by its place, and what only looks like it is not.
func TestText(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"", ""},
		{"a: {b: [1, 2]}\n" + strings.Repeat("-", 200) + "\n# " + strings.Repeat("[x] {y} ", 100), ""},
		{strings.Repeat("- a: 1\n  b: 2\n", 5000), ""},
		{"a: 1\n" + strings.Repeat("#", MaxFile), "1:1: the file is too long"},
		{"a: 1" + strings.Repeat("\r\n", MaxFile/2), "1:1: the file is too long"},
		{strings.Repeat("a: 1\r", MaxList+1), "4097:1: too many keys in one map"},
		{"a: é\nb: é\xe9\n", "2:5: not text in UTF-8"},
		{"a:\n" + strings.Repeat("[", 40), "2:33: nested too deeply"},
		{strings.Repeat("- ", 40), "1:65: nested too deeply"},
		{"a:\n" + strings.Repeat("  b: 1\n", MaxList), ""},
		{"a:\n" + strings.Repeat("  b: 1\n", MaxList+1), "4098:3: too many keys in one map"},
		{"a:\n- " + strings.TrimLeft(strings.Repeat("  b: 1\n", MaxList+1), " "), "4098:3: too many keys in one map"},
		{"a:\n" + strings.Repeat("  -\n", MaxList+1), "4098:3: too many entries without a value"},
	} {
		said := ""
		if _, f, ok := Text([]byte(c.text)); !ok {
			said = fmt.Sprintf("%d:%d: %s", f.Line, f.Col, f.What)
		}
		if said != c.want {
			t.Errorf("%.40q: %q, want %q", c.text, said, c.want)
		}
	}
}
