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

// name is the file of a guest's memory, among those of the host.
func name(guest string) string { return filepath.Base(guest) + suffix }

func path(c *config.Config, guest string) string { return c.StatePath("visits", name(guest)) }

// MakeKey makes the key by which memory is sealed, where c wants memory kept and there is none.
func MakeKey(c *config.Config) error {
	if c.KeepMemory == 0 {
		return nil
	}
	return visit.MakeKey(c.MemoryKey())
}

// Begin begins to keep memory of a guest that leaves the host of c. It is closed where the guest stays, and else kept
// by Keep.
func Begin(c *config.Config) (*visit.Writer, error) {
	key, err := visit.ReadKey(c.MemoryKey())
	if err != nil {
		return nil, err
	}
	return visit.Create(c.StatePath("visits"), key)
}

// Keep keeps what w was told of a guest, now that it has left, and bounds what is kept. On error nothing of that is.
func Keep(c *config.Config, w *visit.Writer, guest string, log *slog.Logger) error {
	err := w.Name(name(guest))
	Bound(c, c.KeepMemory, log.Warn)
	return err
}

// Forget removes what is kept of a guest: it is here again.
func Forget(c *config.Config, guest string) error {
	if err := os.Remove(path(c, guest)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// Elsewhere opens the files on the host of c whose contents a guest that comes may have in its memory: what was kept of
// an earlier visit, where there is any, else nil; and what it was started from: a kernel that the boot loader left in
// low memory, an initrd that is used as it is. They are the caller's to close.
//
// Nothing is offered where nothing is kept: see keep_memory.
func Elsewhere(c *config.Config, guest, image string) (kept *visit.File, images []*visit.File) {
	if c.KeepMemory == 0 {
		return nil, nil
	}
	if f, err := open(c, guest); err == nil {
		kept = f
	}
	from := c.ImageOf(image)
	for _, path := range []string{from.Kernel, from.Initrd} {
		if path == "" {
			continue
		}
		if f, err := visit.Open(path); err == nil {
			images = append(images, f)
		}
	}
	return kept, images
}

// open opens kept memory of a guest on the host of c; visit.ErrKey where its key is gone.
func open(c *config.Config, guest string) (*visit.File, error) { return OpenPath(c, path(c, guest)) }

// OpenPath opens kept memory, also such as has another name by now; visit.ErrKey where its key is gone.
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

// Bound removes kept memory whose time is up, and the oldest of more than most bytes. What stays nevertheless is told to
// warn.
func Bound(c *config.Config, most int64, warn func(msg string, args ...any)) {
	all, err := All(c)
	if err != nil {
		warn("kept memory", "error", err)
		return
	}
	sum := int64(0)
	for _, v := range all {
		sum += v.Bytes
	}
	now := clock.Now()
	for _, v := range all {
		if sum <= most && now.Before(v.Until) {
			v.believe(c, now, warn)
			continue
		}
		if err := os.Remove(v.Path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			warn("remove kept memory", "guest", v.Guest, "error", err)
			continue
		}
		sum -= v.Bytes
	}
}

// believe has memory that was kept before now, as it is here, and while the clock was ahead of that, be kept for no
// longer from now on than all that is.
func (v Visit) believe(c *config.Config, now time.Time, warn func(msg string, args ...any)) {
	if !v.Until.After(now.Add(c.MemoryKeptFor())) {
		return
	}
	if err := os.Chtimes(v.Path, time.Time{}, now); err != nil && !errors.Is(err, fs.ErrNotExist) {
		warn("set back from when memory is kept", "guest", v.Guest, "error", err)
	}
}
