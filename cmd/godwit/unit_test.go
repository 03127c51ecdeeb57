package main

import (
	"io"
	"os"
	"slices"
	"strings"
	"testing"
)

// unit reads a systemd unit's keys; one that is given twice fails the test.
func unit(t *testing.T, path string) map[string]string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	keys := map[string]string{}
	for _, line := range strings.Split(string(data), "\n") {
		if line == "" || line[0] == '#' || line[0] == '[' {
			continue
		}
		key, value, ok := strings.Cut(line, "=")
		if _, twice := keys[key]; !ok || twice {
			t.Errorf("%s: %q", path, line)
		}
		keys[key] = value
	}
	return keys
}

// TestUnit: the agent's unit starts what there is, with flags that there are, and leaves
// guests, tunnels and inlets alone, whatever becomes of the agent.
func TestUnit(t *testing.T) {
	keys := unit(t, "../../packaging/godwit.service")
	for key, want := range map[string]string{"KillMode": "process", "Restart": "always", "OOMPolicy": "continue", "StartLimitIntervalSec": "0", "WantedBy": "multi-user.target"} {
		if keys[key] != want {
			t.Errorf("%s=%s, want %s", key, keys[key], want)
		}
	}
	for _, inherited := range []string{"Nice", "OOMScoreAdjust", "RuntimeDirectory", "PrivateTmp", "PrivateNetwork", "ProtectSystem"} {
		if value, ok := keys[inherited]; ok {
			t.Errorf("%s=%s: guests would get it too", inherited, value)
		}
	}
	words := strings.Fields(keys["ExecStart"])
	if len(words) < 2 || words[0] != "/usr/local/bin/godwit" {
		t.Fatalf("ExecStart=%s", keys["ExecStart"])
	}
	command, rest, err := newRoot(io.Discard).Find(words[1:])
	if err != nil || command.Name() != "agent" {
		t.Fatalf("%s: %v, %v", keys["ExecStart"], command.Name(), err)
	}
	if err := command.ParseFlags(rest); err != nil || command.Flags().NArg() > 0 || !slices.Contains(rest, defaultConfig) {
		t.Errorf("%s: %v", keys["ExecStart"], err)
	}
	for path, want := range map[string]string{
		"../../Makefile":      "packaging/godwit.service",
		"../../docs/agent.md": "](../packaging/godwit.service)",
	} {
		if data, err := os.ReadFile(path); err != nil || !strings.Contains(string(data), want) {
			t.Errorf("%s does not name %s: %v", path, want, err)
		}
	}
}
