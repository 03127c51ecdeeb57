package agent

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"godwit/agent/config"
	"godwit/agent/visits"
)

// visitsHost has a key for memory that it keeps.
func visitsHost(t *testing.T, c *config.Config) *Agent {
	t.Helper()
	a := bareAgent(t, c)
	if err := visits.MakeKey(c); err != nil || c.KeepMemory == 0 {
		t.Fatalf("nothing is to be kept: %v", err)
	}
	return a
}

// What is kept makes way for what needs its room.
func TestKeptMemoryMakesWay(t *testing.T) {
	a := visitsHost(t, &config.Config{KeepMemory: 1 << 30})
	kept := a.config.StatePath("visits", "a.mem")
	if err := errors.Join(os.MkdirAll(filepath.Dir(kept), 0o700), os.WriteFile(kept, make([]byte, 1<<16), 0o600)); err != nil {
		t.Fatal(err)
	}
	free, ok, err := a.roomFor("", 0)
	if err != nil || !ok {
		t.Skipf("less than the reserve is free: %d bytes, %v", free, err)
	}
	if _, err := os.Stat(kept); err != nil {
		t.Errorf("not kept where there is room: %v", err)
	}
	if _, ok, err := a.roomFor("", 1<<60); ok || err != nil {
		t.Errorf("room for 2^60 bytes: %v", err)
	}
	if _, err := os.Stat(kept); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("kept where there is none: %v", err)
	}
}

// Guests share what they bring with those that come from the same host, and with no others.
func TestBesideFrom(t *testing.T) {
	var a Agent
	one, other := a.besideFrom("paris"), a.besideFrom("rome")
	if one == nil || one == other || a.besideFrom("paris") != one {
		t.Error("guests of two hosts share, or those of one do not")
	}
}
