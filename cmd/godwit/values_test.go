package main

import (
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
)

// TestFlagsReadAsFiles: a time and a share are written for a command as they are in a scenario file.
func TestFlagsReadAsFiles(t *testing.T) {
	for _, c := range []struct {
		downtime, throttle string
		pause              time.Duration
		share              int
		ok                 bool
	}{
		{"300ms", "80", 300 * time.Millisecond, 80, true},
		{"0.5s", "80%", 500 * time.Millisecond, 80, true},
		{"300 ms", "0%", 300 * time.Millisecond, 0, true},
		{"3", "80", 0, 0, false},
		{"300ms", "80%%", 0, 0, false},
		{"300ms", "0.8", 0, 0, false},
	} {
		var flags requestFlags
		command := &cobra.Command{}
		flags.add(command)
		err := command.ParseFlags([]string{"--mode", "precopy", "--downtime", c.downtime, "--throttle", c.throttle})
		if (err == nil) != c.ok {
			t.Errorf("--downtime %s --throttle %s: %v", c.downtime, c.throttle, err)
		}
		if !c.ok || err != nil {
			continue
		}
		if req, err := flags.request("web", "b"); err != nil || req.Downtime != c.pause || req.Throttle != c.share {
			t.Errorf("--downtime %s --throttle %s: %v, %d, %v", c.downtime, c.throttle, req.Downtime, req.Throttle, err)
		}
	}
}

// TestBufferIsAsked: what --buffer says is asked of the agent.
func TestBufferIsAsked(t *testing.T) {
	for said, want := range map[string]int64{"64MiB": 64 << 20, "0.5GiB": 512 << 20} {
		var flags requestFlags
		command := &cobra.Command{}
		flags.add(command)
		if err := command.ParseFlags([]string{"--buffer", said}); err != nil {
			t.Fatal(err)
		}
		if req, err := flags.request("web", "b"); err != nil || req.Buffer != want {
			t.Errorf("--buffer %s: %d bytes, %v", said, req.Buffer, err)
		}
	}
}

// TestFlagsSayWhatTheyTake: a value that no flag of its kind takes is told in words of who typed it, and not of the
// library that reads it.
func TestFlagsSayWhatTheyTake(t *testing.T) {
	for line, want := range map[string]string{
		"evacuate a --width x":                      `invalid argument "x" for "--width" flag: not a whole number; see`,
		"lab random --seed -3":                      `invalid argument "-3" for "--seed" flag: not a whole number from 0 on; see`,
		"bench memory --rounds 1e9":                 `invalid argument "1e9" for "--rounds" flag: not a whole number; see`,
		"lab faults --sample 99999999999999999999":  `invalid argument "99999999999999999999" for "--sample" flag: too large; see`,
		"lab faults --sample -99999999999999999999": `invalid argument "-99999999999999999999" for "--sample" flag: too small; see`,
		"migrate web b --watch=maybe":               `invalid argument "maybe" for "--watch" flag: neither true nor false; see`,
		"lab faults --phase switch,nope":            `godwit: --phase nope: unknown; allowed: check, prepare, seed, copy, switch, handover, settle`,
		"lab faults --fault nope":                   `godwit: --fault nope: unknown; allowed: kill-source-agent, `,
		"bench memory --rows idle --variants nope":  `row idle has no variant "nope"; it has: P, `,
		"lab faults --mode nope":                    `godwit: --mode nope: unknown; allowed: auto, `,
	} {
		var out, errOut strings.Builder
		if status := run(strings.Fields(line), &out, &errOut); status != exitUsage || !strings.Contains(errOut.String(), want) {
			t.Errorf("%s: %d, %s, want %s", line, status, &errOut, want)
		}
	}
}
