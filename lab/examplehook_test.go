package lab

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"godwit/agent/hook"
	"godwit/migration"
)

// TestExampleHook: what examples/hooks announces of a guest is in the end what that has, however its move went on, each
// address once; what it withdraws meanwhile is nothing that the guest has.
func TestExampleHook(t *testing.T) {
	data, err := os.ReadFile("../examples/hooks/follow-guest")
	if err != nil {
		t.Fatal(err)
	}
	type event struct {
		name      migration.EventName
		old, next string
	}
	const old, meant, got = "10.1.1.10", "10.2.1.10", "10.2.1.11"
	for name, c := range map[string]struct {
		events []event
		want   string
	}{
		"as was said": {[]event{
			{migration.PreSourceSuspend, old, meant}, {migration.HandoverDone, old, meant}, {migration.HandoverDone, old, meant}, {migration.MigrationDone, old, meant},
		}, "announce 10.2.1.10, withdraw 10.1.1.10"},
		"to another address": {[]event{
			{migration.PreSourceSuspend, old, meant}, {migration.HandoverDone, old, got}, {migration.MigrationDone, old, got},
		}, "announce 10.2.1.10, announce 10.2.1.11, withdraw 10.2.1.10, withdraw 10.1.1.10"},
		"to none": {[]event{
			{migration.PreSourceSuspend, old, meant}, {migration.HandoverDone, old, old}, {migration.MigrationDone, old, old},
		}, "announce 10.2.1.10, withdraw 10.2.1.10"},
		"aborted":                 {[]event{{migration.PreSourceSuspend, old, meant}, {migration.MigrationAborted, old, meant}}, "announce 10.2.1.10, withdraw 10.2.1.10"},
		"aborted before":          {[]event{{migration.MigrationAborted, old, meant}}, ""},
		"aborted, by the tunnel":  {[]event{{migration.PreSourceSuspend, old, old}, {migration.MigrationAborted, old, old}}, ""},
		"after the agent's start": {[]event{{migration.PreSourceSuspend, old, meant}, {migration.LeaseEnded, "", ""}}, "announce 10.2.1.10"},
		"twice": {[]event{
			{migration.PreSourceSuspend, old, meant}, {migration.MigrationAborted, old, meant}, {migration.PreSourceSuspend, old, meant}, {migration.HandoverDone, old, meant},
		}, "announce 10.2.1.10, withdraw 10.2.1.10, announce 10.2.1.10"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			script, table := filepath.Join(dir, "follow-guest"), filepath.Join(dir, "routes")
			const beside = "announce 10.2.1.99 for db\n"
			for path, text := range map[string]string{script: string(data), script + ".conf": "table=" + table + "\n", table: beside} {
				if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
					t.Fatal(err)
				}
			}
			for _, e := range c.events {
				call := hook.Call{Event: e.name, Role: migration.AtSource, Time: time.Unix(0, 0), Old: addrs(e.old), Next: addrs(e.next), Plan: migration.Plan{Guest: "web"}}
				if e.name == migration.MigrationAborted {
					call.Text = "it was called off"
				}
				body, err := json.Marshal(call)
				if err != nil {
					t.Fatal(err)
				}
				cmd := exec.Command("sh", script)
				cmd.Stdin = strings.NewReader(string(body))
				cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "GODWIT_EVENT=" + string(e.name), "GODWIT_ROLE=source", "GODWIT_GUEST=web"}
				if out, err := cmd.CombinedOutput(); err != nil {
					t.Fatalf("%s: %v: %s", e.name, err, out)
				}
			}
			said, err := os.ReadFile(table)
			if err != nil {
				t.Fatal(err)
			}
			var did []string
			for line := range strings.Lines(strings.TrimPrefix(string(said), beside)) {
				words := strings.Fields(line)
				did = append(did, fmt.Sprint(words[0], " ", words[1]))
			}
			if strings.Join(did, ", ") != c.want {
				t.Errorf("it did %q, want %q", did, c.want)
			}
		})
	}
}

// addrs is none, or that one.
func addrs(one string) []netip.Addr {
	if one == "" {
		return nil
	}
	return []netip.Addr{netip.MustParseAddr(one)}
}
