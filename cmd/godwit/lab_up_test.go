package main

import (
	"bytes"
	"net/netip"
	"os"
	"strings"
	"testing"

	"godwit/lab"
)

// TestTriesCanBePasted: the commands that a standing lab names are of the program that built it, from any directory.
func TestTriesCanBePasted(t *testing.T) {
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	standing := lab.Standing{
		ID: "1f", Scenario: "small",
		Hosts:  []lab.StandingHost{{Host: "paris", Socket: "/run/paris.sock"}, {Host: "rome", Socket: "/run/rome.sock"}},
		Guests: []lab.StandingGuest{{Guest: "web", Host: "paris", Addresses: []netip.Addr{netip.MustParseAddr("10.1.1.20")}}},
	}
	for name, program := range map[string]string{"bin/godwit": dir + "/bin/godwit", "/usr/bin/godwit": "/usr/bin/godwit", "godwit": "godwit"} {
		var said bytes.Buffer
		sayStanding(&said, called(name), standing)
		for _, want := range []string{"\n  " + program + " migrate web rome --watch --socket /run/paris.sock\n", "\n  " + program + " guest ls", "`" + program + " lab down 1f`"} {
			if !strings.Contains(said.String(), want) {
				t.Errorf("%s: no %q in\n%s", name, want, said.String())
			}
		}
	}
}
