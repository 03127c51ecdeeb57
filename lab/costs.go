package lab

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/klauspost/compress/zstd"

	"godwit/agent/visits"
	"godwit/internal/clock"
	"godwit/lab/report"
	"godwit/netstate/netns"
	"godwit/transfer/encode"
	"godwit/transfer/encode/visit"
	"godwit/transfer/pages"
)

// What benches want to know of a migration beside its report: Options.Costs.

// processors follows what a lab's hosts use of the machine's processors: agents, tunnels
// and QEMU, but for the threads that are guests' own.
type processors struct {
	mu     sync.Mutex
	all    map[int]time.Duration // by process, the ended ones as they were last seen
	guests map[int]time.Duration // of that: of guests' own threads, the ended ones likewise
}

// processorsEvery is how much of a process that ends may not be seen.
const processorsEvery = 100 * time.Millisecond

// follow looks until ctx ends.
func (p *processors) follow(ctx context.Context, namespaces []string) {
	for clock.Sleep(ctx, processorsEvery) {
		p.look(namespaces)
	}
}

func (p *processors) look(namespaces []string) {
	for _, all := range netns.ProcessesIn(namespaces...) {
		for _, pid := range all {
			if all, guests, ok := used(pid); ok {
				p.saw(pid, all, guests)
			}
		}
	}
}

// saw takes in what a process had used by then. The threads of one that ends may go before it, and what they used stays
// in its sum.
func (p *processors) saw(pid int, all, guests time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.all == nil {
		p.all, p.guests = map[int]time.Duration{}, map[int]time.Duration{}
	}
	p.all[pid], p.guests[pid] = max(p.all[pid], all), max(p.guests[pid], guests)
}

func (p *processors) sum() (sum time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for pid, all := range p.all {
		sum += max(all-p.guests[pid], 0)
	}
	return sum
}

// tick is the kernel's unit of processor time (USER_HZ).
const tick = 10 * time.Millisecond

// used is the processor time of a process, and of that what the threads of a guest's processors used,
// which QEMU names after them.
func used(pid int) (all, guests time.Duration, ok bool) {
	_, all, ok = readStat(fmt.Sprintf("/proc/%d/stat", pid))
	if !ok {
		return 0, 0, false
	}
	tasks, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
	for _, task := range tasks {
		if name, own, ok := readStat(task); ok && strings.HasPrefix(name, "CPU ") {
			guests += own
		}
	}
	return all, guests, true
}

// readStat reads name and processor time of proc(5)'s stat.
func readStat(path string) (name string, used time.Duration, ok bool) {
	data, err := os.ReadFile(path)
	from, to := bytes.IndexByte(data, '('), bytes.LastIndexByte(data, ')')
	if err != nil || from < 0 || to < from {
		return "", 0, false
	}
	fields := strings.Fields(string(data[to+1:]))
	if len(fields) < 13 {
		return "", 0, false
	}
	for _, f := range fields[11:13] { // utime and stime
		n, err := strconv.Atoi(f)
		if err != nil {
			return "", 0, false
		}
		used += time.Duration(n) * tick
	}
	return string(data[from+1 : to]), used, true
}

// namespaces are those of the hosts.
func (w *world) namespaces() []string {
	var out []string
	for _, a := range w.agents {
		out = append(out, a.host.Namespace)
	}
	return out
}

// keepLeft keeps the memory that the source of a migration kept, for leastBytes: a lease's
// end takes the agent's own name of it away.
func (r *run) keepLeft(m *move) {
	if !r.opts.Costs || m.report == nil {
		return
	}
	from := filepath.Join(r.w.agents[m.from].config.State, "visits", m.guest+".mem")
	to := filepath.Join(r.w.dir, "left-"+m.id)
	if os.Link(from, to) == nil {
		m.left = to
	}
}

// leastBytes is what the memory of a guest that left takes at the least: each content once,
// those of files that are there not at all, 64 of them together as small as zstd makes them.
func leastBytes(ctx context.Context, left *visit.File, there ...*visit.File) (int64, error) {
	seen := map[uint64]bool{}
	for _, f := range there {
		if err := eachPage(ctx, f, func(_ []byte, hash uint64) { seen[hash] = true }); err != nil {
			return 0, err
		}
	}
	enc, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1), zstd.WithEncoderLevel(zstd.SpeedBestCompression))
	if err != nil {
		return 0, err
	}
	defer enc.Close()
	var sum int64
	var batch, packed []byte
	flush := func() {
		if len(batch) == 0 { // of which a frame would be made, too
			return
		}
		packed = enc.EncodeAll(batch, packed[:0])
		sum, batch = sum+int64(len(packed)), batch[:0]
	}
	err = eachPage(ctx, left, func(page []byte, hash uint64) {
		if seen[hash] {
			return
		}
		seen[hash] = true
		if batch = append(batch, page...); len(batch) == pages.MaxPages*pages.Size {
			flush()
		}
	})
	flush()
	return sum, err
}

// eachPage calls look for each page of a file that is not zeros. The hash tells pages of
// one guest apart well enough for a bound; nothing is coded by it.
func eachPage(ctx context.Context, f *visit.File, look func(page []byte, hash uint64)) error {
	page := make([]byte, pages.Size)
	return f.Hashes(ctx, pages.MaxPages, encode.MostOffered, func(first uint64, hashes []uint64) bool {
		for i, hash := range hashes {
			if hash == 0 || f.Content(first+uint64(i), page) != nil { //nolint:gosec // not negative
				continue
			}
			look(page, hash)
		}
		return true
	})
}

// fillCosts is for a run with Options.Costs.
func (r *run) fillCosts(out *report.Migration, m *move) {
	if !r.opts.Costs {
		return
	}
	seconds := m.cpu.Seconds()
	out.CPUS = &seconds
	r.fillSlowdown(out, m)
	if m.left == "" {
		out.Null("least_bytes", "its source kept no memory to look at: only our own data path does, of a guest that has left")
		return
	}
	least, err := r.leastOf(context.Background(), m, out.To)
	if err != nil {
		out.Null("least_bytes", err.Error())
		return
	}
	out.LeastBytes = &least
}

// leastOf is the least of a move to a host, which has what the guest was booted from, and what it kept when the guest
// was there last.
func (r *run) leastOf(ctx context.Context, m *move, to string) (int64, error) {
	left, err := r.openLeft(m)
	if err != nil {
		return 0, err
	}
	defer left.Close()
	var there []*visit.File
	defer func() {
		for _, f := range there {
			f.Close() //nolint:errcheck // it was read only
		}
	}()
	booted := r.w.image
	for _, g := range r.w.scenario.Guests {
		if other, known := r.w.images[g.Image]; known && g.Name == m.guest {
			booted = other
		}
	}
	for _, path := range []string{booted.Kernel, booted.Initrd} {
		f, err := visit.Open(path)
		if err != nil {
			return 0, err
		}
		there = append(there, f)
	}
	if before := r.leftBefore(m, to); before != nil {
		f, err := r.openLeft(before)
		if err != nil {
			return 0, err
		}
		there = append(there, f)
	}
	return leastBytes(ctx, left, there...)
}

func (r *run) openLeft(m *move) (*visit.File, error) {
	return visits.OpenPath(&r.w.agents[m.from].config, m.left)
}

// leftBefore is the guest's last move before m that left memory at a host; nil where none did.
func (r *run) leftBefore(m *move, host string) (last *move) {
	for _, other := range r.moves {
		if other == m {
			break
		}
		if other.guest == m.guest && other.from == host && other.left != "" {
			last = other
		}
	}
	return last
}
