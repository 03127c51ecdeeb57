package agent

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"godwit/agent/config"
	"godwit/internal/clock"
	"godwit/transfer/encode/visit"
	"godwit/transfer/proxy"
)

// The memory of a guest that leaves over our own data path is kept here for a while, where
// the configuration says so, and what is still the same need not travel when it comes back
// (package visit). It is a cache under a lease: whoever needs its room may remove it. It is
// sealed by a key that lies in the runtime directory, in memory on most hosts, and ends with
// it: what it has sealed is of no use then, and removed.

const visitSuffix = ".mem"

// makeVisitKey makes the key, where one is wanted and there is none.
func (a *Agent) makeVisitKey() {
	if a.config.KeepMemory == 0 {
		return
	}
	if err := visit.MakeKey(a.config.MemoryKey()); err != nil {
		a.log.Warn("memory is not kept for a return", "error", err)
	}
}

// OpenVisit opens kept memory of the host of c; visit.ErrKey where its key is gone.
func OpenVisit(c *config.Config, path string) (*visit.File, error) {
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

// Visits lists what is kept on the host of c, the oldest first.
func Visits(c *config.Config) ([]Visit, error) {
	entries, err := os.ReadDir(c.StatePath("visits"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("look for kept memory: %w", err)
	}
	var out []Visit
	for _, e := range entries {
		guest, ok := strings.CutSuffix(e.Name(), visitSuffix)
		var st unix.Stat_t
		path := c.StatePath("visits", e.Name())
		if !ok || unix.Lstat(path, &st) != nil {
			continue
		}
		until := time.Unix(st.Mtim.Unix()).Add(c.MemoryKeptFor())
		f, err := OpenVisit(c, path)
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

// boundVisits removes kept memory whose time is up, and the oldest of more than most bytes.
func (a *Agent) boundVisits(most int64) {
	all, err := Visits(a.config)
	if err != nil {
		a.log.Warn("kept memory", "error", err)
		return
	}
	sum := int64(0)
	for _, v := range all {
		sum += v.Bytes
	}
	now := clock.Now()
	for _, v := range all {
		if sum <= most && now.Before(v.Until) {
			continue
		}
		if err := os.Remove(v.Path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			a.log.Warn("remove kept memory", "guest", v.Guest, "error", err)
			continue
		}
		sum -= v.Bytes
	}
}

// roomFor says whether the state directory has room for as many bytes, and the reserve.
// What is kept makes way.
func (a *Agent) roomFor(bytes int64) (free int64, ok bool, err error) {
	look := func() error {
		var stat unix.Statfs_t
		if err := unix.Statfs(a.config.State, &stat); err != nil {
			return fmt.Errorf("look for room in %s: %w", a.config.State, err)
		}
		free = int64(stat.Bavail) * stat.Bsize //nolint:gosec // no file system has 2^63 bytes
		return nil
	}
	if err := look(); err != nil || free >= bytes+diskReserve {
		return free, err == nil, err
	}
	a.boundVisits(0)
	err = look()
	return free, err == nil && free >= bytes+diskReserve, err
}

// beginVisit begins to keep memory of the guest that leaves; nil where that is not wanted,
// or there is no room.
func (m *outgoing) beginVisit() *visit.Writer {
	memory := m.work.facts.Memory
	if memory > m.a.config.KeepMemory {
		return nil
	}
	if _, ok, err := m.a.roomFor(memory); !ok || err != nil {
		return nil
	}
	key, err := visit.ReadKey(m.a.config.MemoryKey())
	if err != nil {
		m.a.log.Warn("memory is not kept for a return", "migration", m.plan.ID, "error", err)
		return nil
	}
	w, err := visit.Create(m.a.config.StatePath("visits"), key)
	if err != nil {
		m.a.log.Warn("memory is not kept for a return", "migration", m.plan.ID, "error", err)
		return nil
	}
	return w
}

// endVisit keeps what was written, now that the guest has left, or drops it.
func (m *outgoing) endVisit(left bool) {
	w := m.work.visit
	m.work.visit = nil
	if w == nil {
		return
	}
	if !left {
		w.Close() //nolint:errcheck // it is given up
		return
	}
	if err := w.Name(m.plan.Guest + visitSuffix); err != nil {
		m.a.log.Info("memory is not kept for a return", "migration", m.plan.ID, "error", err)
	}
	m.a.boundVisits(m.a.config.KeepMemory)
}

// elsewhere are the files here whose contents the guest that comes may have in its memory:
// what was kept of an earlier visit, and what it was started from: a kernel that the boot
// loader left in low memory, an initrd that is used as it is.
//
// Nothing is offered where nothing is kept: see keep_memory.
func (m *incoming) elsewhere() (out []*visit.File) {
	if m.a.config.KeepMemory == 0 {
		return nil
	}
	if f, err := OpenVisit(m.a.config, m.a.visitPath(m.plan.Guest)); err == nil {
		out = append(out, f)
	}
	image := m.a.config.ImageOf(m.work.preparation.Description.Image)
	for _, path := range []string{image.Kernel, image.Initrd} {
		if path == "" {
			continue
		}
		if f, err := visit.Open(path); err == nil {
			out = append(out, f)
		}
	}
	return out
}

// besideFrom are the guests that come from a host, which may share what they bring. admit has
// seen that each is that host's by its certificate.
func (a *Agent) besideFrom(host string) *proxy.Beside {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.beside == nil {
		a.beside = map[string]*proxy.Beside{}
	}
	if a.beside[host] == nil {
		a.beside[host] = new(proxy.Beside)
	}
	return a.beside[host]
}

// forgetVisit removes it: the guest is here.
func (m *incoming) forgetVisit() {
	if err := os.Remove(m.a.visitPath(m.plan.Guest)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		m.a.log.Warn("remove kept memory", "guest", m.plan.Guest, "error", err)
	}
}

func (a *Agent) visitPath(guest string) string {
	return a.config.StatePath("visits", filepath.Base(guest)+visitSuffix)
}
