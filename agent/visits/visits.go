// Package visits knows the memory that a host keeps of guests which left over our own data path, where its configuration
// says so: what is still the same need not travel when they come back (package visit). It is a cache under a lease: whoever
// needs its room may remove it. It is sealed by a key that lies in the runtime directory, in memory on most hosts, and ends
// with it: what it has sealed is of no use then, and removed.
package visits

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"godwit/agent/config"
	"godwit/internal/clock"
	"godwit/transfer/encode/visit"
)

const suffix = ".mem"

// Name is the file of a guest's memory, among those of the host.
func Name(guest string) string { return filepath.Base(guest) + suffix }

// Path is where that is.
func Path(c *config.Config, guest string) string { return c.StatePath("visits", Name(guest)) }

// Open opens kept memory of a guest on the host of c; visit.ErrKey where its key is gone.
func Open(c *config.Config, guest string) (*visit.File, error) { return OpenPath(c, Path(c, guest)) }

// OpenPath is Open for one that has another name by now.
func OpenPath(c *config.Config, path string) (*visit.File, error) {
	key, err := visit.ReadKey(c.MemoryKey())
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("kept memory %s: %w", path, visit.ErrKey)
	}
	if err != nil {
		return nil, err
	}
	return visit.OpenKept(path, key)
}

// Visit is kept memory of a guest that left.
type Visit struct {
	Guest string
	Path  string
	Bytes int64     // on the disk
	Until time.Time // its lease; zero: it is of no use
}

// All lists what is kept on the host of c, the oldest first.
func All(c *config.Config) ([]Visit, error) {
	entries, err := os.ReadDir(c.StatePath("visits"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("look for kept memory: %w", err)
	}
	var out []Visit
	for _, e := range entries {
		guest, ok := strings.CutSuffix(e.Name(), suffix)
		var st unix.Stat_t
		path := c.StatePath("visits", e.Name())
		if !ok || unix.Lstat(path, &st) != nil {
			continue
		}
		until := time.Unix(st.Mtim.Unix()).Add(c.MemoryKeptFor())
		f, err := OpenPath(c, path)
		if err == nil {
			f.Close() //nolint:errcheck // it was read only
		}
		if c.KeepMemory == 0 || errors.Is(err, visit.ErrKey) {
			until = time.Time{}
		}
		out = append(out, Visit{Guest: guest, Path: path, Bytes: st.Blocks * 512, Until: until})
	}
	slices.SortStableFunc(out, func(a, b Visit) int { return a.Until.Compare(b.Until) })
	return out, nil
}

// Bound removes kept memory whose time is up, and the oldest of more than most bytes.
func Bound(c *config.Config, most int64, log *slog.Logger) {
	all, err := All(c)
	if err != nil {
		log.Warn("kept memory", "error", err)
		return
	}
	sum := int64(0)
	for _, v := range all {
		sum += v.Bytes
	}
	now := clock.Now()
	for _, v := range all {
		if sum <= most && now.Before(v.Until) {
			v.believe(c, now, log)
			continue
		}
		if err := os.Remove(v.Path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			log.Warn("remove kept memory", "guest", v.Guest, "error", err)
			continue
		}
		sum -= v.Bytes
	}
}

// believe has memory that was kept before now, as it is here, and while the clock was ahead of that, be kept for no longer from now on
// than all that is.
func (v Visit) believe(c *config.Config, now time.Time, log *slog.Logger) {
	if !v.Until.After(now.Add(c.MemoryKeptFor())) {
		return
	}
	if err := os.Chtimes(v.Path, time.Time{}, now); err != nil && !errors.Is(err, fs.ErrNotExist) {
		log.Warn("set back from when memory is kept", "guest", v.Guest, "error", err)
	}
}
