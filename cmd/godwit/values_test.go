package main

import (
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
