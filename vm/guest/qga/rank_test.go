package qga

import (
	"os/exec"
	"strings"
	"testing"

	"godwit/internal/need"
)

// TestRank: the metric of the next default route of NICs, by every shell that /bin/sh may be. Such a route
// takes no other device's place.
func TestRank(t *testing.T) {
	for _, shell := range [][]string{{"sh"}, {"bash"}, {"bash", "--posix"}, {"busybox", "sh"}} {
		need.Program(t, shell[0])
		for routes, want := range map[string]string{
			"":                              "",
			"default via 10.1.1.1 dev eth0": "metric 0",
			"default dev vpn0 metric 50\ndefault via 10.1.1.1 dev eth0 metric 100":                    "metric 100",
			"default via 10.8.0.1 dev vpn0":                                                           "metric 1",
			"default dev vpn0 metric 50\ndefault dev vpn1 metric 7":                                   "metric 51",
			"default dev vpn0 metric 1024\ndefault via fe80::1 dev eth0 metric 1024 pref":             "metric 1025",
			"default via fe80::1 dev eth1 metric 300\ndefault via fe80::1 dev eth0 metric 200 onlink": "metric 200",
		} {
			s := &script{}
			s.functions()
			s.line(`ip() { echo "$routes"; }; isnic() { case $1 in eth*) ;; *) false;; esac; }; rank -4`)
			cmd := exec.Command(shell[0], append(shell[1:], "-c", s.String())...)
			cmd.Env = append(cmd.Environ(), "routes="+routes)
			out, err := cmd.CombinedOutput()
			if got := strings.TrimSpace(string(out)); err != nil || got != want {
				t.Errorf("%s: %q: %q (%v), want %q", shell, routes, got, err, want)
			}
		}
	}
}
