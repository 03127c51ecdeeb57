package fence

import (
	"context"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestProve: exit status 0 in time says that the host is off, and nothing else does.
func TestProve(t *testing.T) {
	dir := t.TempDir()
	for name, c := range map[string]struct {
		script string
		want   string // in the error; "": fenced
	}{
		"off":               {"cat > " + dir + "/told; exit 0", ""},
		"leaves something":  {"sleep 60 & echo $! >" + dir + "/left; exit 0", ""},
		"not off":           {"echo the power strip does not answer >&2; exit 1", "not fenced: exit status 1: the power strip does not answer"},
		"killed":            {"kill -9 $$", "not fenced: signal: killed"},
		"hangs":             {"sleep 60 & wait", "not fenced: no result within"},
		"says too much":     {"yes off | head -c 30000000; exit 3", "not fenced: exit status 3: off"},
		"says it in colour": {`printf '\033[31moff?\033[0m\r\n'; exit 1`, "not fenced: exit status 1:  [31moff? [0m"},
		"not an executable": {"", "not fenced"},
	} {
		path := filepath.Join(dir, "fence")
		mode := os.FileMode(0o700)
		if c.script == "" {
			mode = 0o600
		}
		os.Remove(path)
		if err := os.WriteFile(path, []byte("#!/bin/sh\n"+c.script+"\n"), mode); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		if name == "hangs" {
			cancel()
			ctx, cancel = context.WithTimeout(t.Context(), 300*time.Millisecond)
		}
		begun := time.Now()
		err := Prove(ctx, path, Ask{"m-00000001", "web", "rome", 3})
		cancel()
		if (err == nil) != (c.want == "") || err != nil && (!strings.Contains(err.Error(), c.want) || strings.ContainsAny(err.Error(), "\n\r\x1b") || len(err.Error()) > 5000) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
		if took := time.Since(begun); name == "hangs" && took > 20*time.Second {
			t.Errorf("a fence that hangs took %v", took)
		}
	}
	left, err := os.ReadFile(filepath.Join(dir, "left"))
	if err != nil {
		t.Fatal(err)
	}
	if pid, err := strconv.Atoi(strings.TrimSpace(string(left))); err != nil || syscall.Kill(pid, syscall.SIGKILL) != nil {
		t.Errorf("what it left is gone: %q, %v", left, err)
	}
	told, err := os.ReadFile(filepath.Join(dir, "told"))
	if want := `{"migration":"m-00000001","guest":"web","host":"rome","epoch":3}`; err != nil || string(told) != want {
		t.Errorf("the fence was told %s, %v; want %s", told, err, want)
	}
}
