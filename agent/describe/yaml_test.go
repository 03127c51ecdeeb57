package describe

import (
	"testing"
	"unicode/utf8"

	"godwit/agent/config"
)

// FuzzYAML: whatever somebody's words are, the file says them.
func FuzzYAML(f *testing.F) {
	for _, word := range []string{
		"a: b", "# c", "{fd0}", "é\u2028\u0085\x7f\ufeff", "- a", "--", "~", "NULL", "0x1", "1e3", "a\nb", "", "'", `"`, `\`, "a,b", "<&>", "-x.1", "/.5", "\x1b[0m",
	} {
		f.Add(word, word)
	}
	f.Fuzz(func(t *testing.T, a, b string) {
		if !utf8.ValidString(a + " " + b) { // an error, see split
			return
		}
		found := Found{Look: []string{b}, Description: config.Description{
			Name: "web", Memory: 1 << 30, QMP: "/q", Channel: "/c", Start: []string{"qemu", a, b}, NICs: []config.NIC{{MAC: "52:54:00:00:00:0a", Tap: a}},
		}}
		loads(t, found)
	})
}
