package main

import (
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"godwit/internal/need"
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

// TestGuestUnit: the helper's is started again for ever, too, and by what the helper knows.
func TestGuestUnit(t *testing.T) {
	keys := unit(t, "../../packaging/godwit-guest.service")
	for key, want := range map[string]string{"ExecStart": "/usr/sbin/godwit-guest serve", "Restart": "always", "StartLimitIntervalSec": "0", "WantedBy": "multi-user.target"} {
		if keys[key] != want {
			t.Errorf("%s=%s, want %s", key, keys[key], want)
		}
	}
}

// TestInstall: what `make install` copies `make uninstall` removes, and nothing that an agent keeps. The agent's unit
// starts the program that was copied, wherever that is.
func TestInstall(t *testing.T) {
	need.Program(t, "make")
	agentUnit, err := os.ReadFile("../../packaging/godwit.service")
	if err != nil {
		t.Fatal(err)
	}
	source := t.TempDir()
	for _, file := range []string{"bin/godwit", "bin/godwit-guest", "build/guest/vmlinuz", "build/guest/initrd.img", "packaging/godwit.service", "packaging/godwit-guest.service"} {
		path := filepath.Join(source, file)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, agentUnit, 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	for _, prefix := range []string{"/usr/local", "/usr"} {
		system := filepath.Join(t.TempDir(), "a b")
		service := prefix + "/lib/systemd/system/godwit.service"
		files := runMake(t, source, system, "install", "PREFIX="+prefix)
		if len(files) != 6 || !slices.Contains(files, service) {
			t.Errorf("installed: %v", files)
		}
		if start := unit(t, system+service)["ExecStart"]; !slices.Contains(files, strings.Fields(start)[0]) {
			t.Errorf("ExecStart=%s, of %v", start, files)
		}
		kept := "/var/lib/godwit/guests.json"
		if err := os.WriteFile(system+kept, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if files := runMake(t, source, system, "uninstall", "PREFIX="+prefix); !slices.Equal(files, []string{kept}) {
			t.Errorf("left: %v, want %s alone", files, kept)
		}
		if err := os.Remove(system + kept); err != nil {
			t.Fatal(err)
		}
		runMake(t, source, system, "uninstall", "PREFIX="+prefix)
		if _, err := os.Stat(system + "/var/lib/godwit"); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("an empty directory was left: %v", err)
		}
	}
}

// TestCopiedByHand: the README's unit lies where `make install` puts its own, and not where it would hide that one;
// docs/agent.md removes what the README copied.
func TestCopiedByHand(t *testing.T) {
	for path, want := range map[string]string{
		"../../Makefile":      `install -D -m 644 -t "$(DESTDIR)$(PREFIX)/lib/systemd/system" packaging/godwit.service`,
		"../../README.md":     "\ninstall godwit /usr/local/bin && install -D -m 644 -t /usr/local/lib/systemd/system godwit.service\n",
		"../../docs/agent.md": "`rm /usr/local/bin/godwit /usr/local/lib/systemd/system/godwit.service`",
	} {
		if data, err := os.ReadFile(path); err != nil || !strings.Contains(string(data), want) {
			t.Errorf("%s has not %q: %v", path, want, err)
		}
	}
}

// runMake makes a target of the Makefile of a source, where all is built; files are those of the system then.
func runMake(t *testing.T, source, system string, args ...string) (files []string) {
	t.Helper()
	makefile, err := filepath.Abs("../../Makefile")
	if err != nil {
		t.Fatal(err)
	}
	args = append([]string{"-C", source, "-f", makefile, "-o", "build", "DESTDIR=" + system}, args...)
	out, err := exec.CommandContext(t.Context(), "make", args...).CombinedOutput()
	if err != nil {
		t.Fatalf("make %v: %v\n%s", args, err, out)
	}
	err = filepath.WalkDir(system, func(path string, d os.DirEntry, err error) error {
		if !d.IsDir() {
			files = append(files, strings.TrimPrefix(path, system))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// TestUnit: the agent's unit starts what there is, with flags that there are, and leaves
// guests, tunnels and inlets alone, whatever becomes of the agent.
func TestUnit(t *testing.T) {
	keys := unit(t, "../../packaging/godwit.service")
	for key, want := range map[string]string{"KillMode": "process", "Restart": "always", "OOMPolicy": "continue", "ManagedOOMPreference": "omit", "StartLimitIntervalSec": "0", "WantedBy": "multi-user.target"} {
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
