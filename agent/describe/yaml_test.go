package describe

import (
	"net/netip"
	"testing"
	"unicode/utf8"

	"godwit/agent/config"
	"godwit/migration"
)

// TestYAMLOfAddresses: where nobody in the guest can be asked, the file names its addresses, if they are known.
func TestYAMLOfAddresses(t *testing.T) {
	loads(t, Found{Description: config.Description{
		Name: "web", Memory: 1 << 30, QMP: "/q", Start: []string{"qemu"}, NICs: []config.NIC{{MAC: "52:54:00:00:00:0a", Tap: "tap0"}},
		Addresses: []migration.Address{
			{Prefix: netip.MustParsePrefix("10.1.1.20/24"), Gateway: netip.MustParseAddr("10.1.1.1"), Public: netip.MustParseAddr("192.0.2.7")},
			{Prefix: netip.MustParsePrefix("fd00:1:1::20/64")},
		},
	}})
}

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
