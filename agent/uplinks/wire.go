package uplinks

import (
	"maps"
	"math"
	"sync"
)

// Wire is what one migration has sent, by path, since it began to count. The zero value has not begun.
type Wire struct {
	mu     sync.Mutex
	before map[string]int64
	start  *Sent
	share  *WireShare // of what the meters count since start

	uncounted map[string]string // paths of which some was not counted since, and why
}

// Begin counts from now on: before is what was sent until then, such as in earlier tries, and share what tells the
// migration's bytes from others'.
func (w *Wire) Begin(before map[string]int64, now *Sent, share *WireShare) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.before, w.start, w.share, w.uncounted = before, now, share, latest(nil, now.uncounted)
}

// Begun says whether it counts.
func (w *Wire) Begun() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.start != nil
}

// Since is what the migration has sent until now, as read tells of its paths: a look is no older than the one before
// it. Of what others send to the same host at the same time as much as they sent is theirs.
func (w *Wire) Since(read func() *Sent) map[string]int64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := read()
	w.uncounted = latest(w.uncounted, now.uncounted)
	part, anew := w.share.Settle()
	out := sum(sum(w.before, w.start.tunnels, now.tunnels, 1), w.start.rest, now.rest, part)
	if anew {
		w.before, w.start = maps.Clone(out), &Sent{tunnels: latest(w.start.tunnels, now.tunnels), rest: latest(w.start.rest, now.rest)}
	}
	return out
}

// Uncounted are the paths of which what Since tells is not all, as some of what took them was not counted, and why.
func (w *Wire) Uncounted() map[string]string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return latest(nil, w.uncounted)
}

// latest is what was read last of each path: a meter that could not be read now has counted on.
func latest[T any](before, now map[string]T) map[string]T {
	out := map[string]T{}
	maps.Copy(out, before)
	maps.Copy(out, now)
	return out
}

// Follow is that of its share.
func (w *Wire) Follow(sent func() int64) (leave func()) { return w.share.Follow(sent) }

// Leave ends its share, if it has begun.
func (w *Wire) Leave() { w.share.Leave() }

// sum is what was sent before, and a part of what meters have counted from start to now, by path.
func sum(before, start, now map[string]int64, part float64) map[string]int64 {
	out := map[string]int64{}
	maps.Copy(out, before)
	for path, bytes := range now {
		out[path] += int64(math.Round(float64(bytes-start[path]) * part))
		if out[path] == 0 {
			delete(out, path)
		}
	}
	return out
}
