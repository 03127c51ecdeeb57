package agent

import (
	"errors"
	"io/fs"
	"math"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"godwit/agent/agenttest"
	"godwit/agent/config"
	"godwit/agent/talk"
	"godwit/internal/need"
	"godwit/migration"
	"godwit/vm"
)

// mounted makes dir a file system of its own, of that size.
func mounted(t *testing.T, dir, size string) {
	t.Helper()
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size="+size); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Unmount(dir, unix.MNT_DETACH) }) //nolint:errcheck // it goes with its directory
}

// TestRoomWhereDisksLie: disks may have a volume of their own: what is free there is theirs, and the rest of the state
// has its own.
func TestRoomWhereDisksLie(t *testing.T) {
	need.Root(t)
	const mib = 1 << 20
	for name, c := range map[string]struct {
		state, disks  string // sizes
		disk, touched int64
		has           string // where it lacks room
	}{
		"a small state":        {"16m", "2g", 1024 * mib, 8 * mib, ""},
		"no room for the copy": {"16m", "2g", 1024 * mib, 100 * mib, "16 MiB of disk free in STATE,"},
		"a small volume":       {"4g", "600m", 200 * mib, mib, "600 MiB of disk free in STATE/disks,"},
		"which is enough":      {"4g", "600m", 50 * mib, 3000 * mib, ""},
	} {
		t.Run(name, func(t *testing.T) {
			a := between(t)
			a.config.MemoryReserve = math.MinInt64 / 2
			state := a.config.State
			mounted(t, state, c.state)
			mounted(t, a.config.StatePath("disks"), c.disks)
			offer := talk.Offer{
				Plan: migration.Plan{ID: "m", Guest: "web", Transfer: "lanes"}, Touched: c.touched,
				Description: config.Description{Disks: []vm.Disk{{ID: "a"}}},
				Facts:       vm.Facts{Memory: 1 << 40, Disks: []vm.Disk{{ID: "a", Size: c.disk}}},
			}
			if c.has == "" {
				agenttest.Refused(t, name, a.roomForAll(offer, everyone), "")
				return
			}
			agenttest.Refused(t, name, a.roomForAll(offer, everyone), migration.CodeCapacity, strings.Replace(c.has, "STATE", state, 1))
		})
	}
}

// TestKeptMemoryElsewhereStays: what is kept on another file system makes no room by its end.
func TestKeptMemoryElsewhereStays(t *testing.T) {
	need.Root(t)
	a := visitsHost(t, &config.Config{KeepMemory: 1 << 30})
	mounted(t, a.config.StatePath("disks"), "16m")
	kept := a.config.StatePath("visits", "a.mem")
	if err := errors.Join(os.MkdirAll(a.config.StatePath("visits"), 0o700), os.WriteFile(kept, make([]byte, 1<<16), 0o600)); err != nil {
		t.Fatal(err)
	}
	if free, ok, err := a.roomFor("disks", 0); ok || err != nil || free > 16<<20 {
		t.Errorf("%d bytes, room %v, %v", free, ok, err)
	}
	if _, err := os.Stat(kept); err != nil {
		t.Error("removed for nothing")
	}
	if _, ok, err := a.roomFor("visits", 1<<60); ok || err != nil {
		t.Errorf("room for 2^60 bytes: %v", err)
	}
	if _, err := os.Stat(kept); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("kept where there is none: %v", err)
	}
}

// TestAvailable: blocks are counted in fragments, where a file system tells their size.
func TestAvailable(t *testing.T) {
	for _, c := range []struct {
		stat unix.Statfs_t
		want int64
	}{
		{unix.Statfs_t{Bavail: 10, Bsize: 1 << 20, Frsize: 4096}, 40960},
		{unix.Statfs_t{Bavail: 10, Bsize: 4096, Frsize: 4096}, 40960},
		{unix.Statfs_t{Bavail: 10, Bsize: 4096}, 40960},
	} {
		if got := available(c.stat); got != c.want {
			t.Errorf("%+v: %d, want %d", c.stat, got, c.want)
		}
	}
}
