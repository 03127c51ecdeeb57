package lab

import (
	"strings"
	"testing"

	"godwit/lab/scenario"
)

// What is missing on the machine is said before anything is built.
func TestNeeds(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	for want, s := range map[string]*scenario.Scenario{
		"":                       {},
		"qemu-system-x86_64 is ": {Guests: []scenario.Guest{{Name: "web"}}},
		"iperf3 is ":             {Traffic: []scenario.Traffic{{Kind: "iperf3"}}},
	} {
		err := (&world{scenario: s}).needs()
		if (err == nil) != (want == "") || err != nil && (!strings.HasPrefix(err.Error(), want) || !strings.Contains(err.Error(), "make build")) {
			t.Errorf("%q: %v", want, err)
		}
	}
}
