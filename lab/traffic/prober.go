package traffic

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"time"
)

// Prober asks a guest's addresses for a UDP echo again and again, and knows
// when nobody answered. Its methods may be called at the same time.
type Prober struct {
	p     *process
	every time.Duration

	setting sync.Mutex // one at a time changes what is asked

	mu      sync.Mutex
	news    *sync.Cond
	ended   bool
	turn    int     // counts what was set
	until   int64   // everything before is known, unix ns
	replies []Reply // in the order of their arrival
	spells  []spell // in which anything was asked
}

// tellLimit is how long a prober's process may say nothing, which it does every tellEvery.
const tellLimit = 5 * time.Second

// StartProber starts a prober's process in the namespace; each target is asked
// every interval (0 is 10 ms), beginning with SetTargets. It ends like a Client.
func StartProber(ctx context.Context, namespace string, every time.Duration) (*Prober, error) {
	if every <= 0 {
		every = defaultEvery
	}
	r := &Prober{every: every}
	r.news = sync.NewCond(&r.mu)
	p, err := startProcess(ctx, namespace, proberChild, func(m message) {
		if m.Probed != nil {
			r.note(m.Probed)
		}
	})
	if err != nil {
		return nil, err
	}
	r.p = p
	go func() {
		<-p.done
		r.mu.Lock()
		r.ended = true
		r.mu.Unlock()
		r.news.Broadcast()
	}()
	return r, nil
}

// SetTargets replaces the addresses that are asked from now on. Of a time in which there are
// none no downtime is known.
func (r *Prober) SetTargets(targets []netip.Addr) error {
	r.setting.Lock()
	defer r.setting.Unlock()
	return r.set(targets)
}

// Rest has the prober ask on until a reply came that is later than t (unix ns), so that the wait
// which t lies in is known to its end, and then no more. SetTargets takes that back.
func (r *Prober) Rest(t int64) {
	r.mu.Lock()
	turn := r.turn
	r.mu.Unlock()
	go func() {
		r.mu.Lock()
		for r.turn == turn && !r.ended && (len(r.replies) == 0 || r.replies[len(r.replies)-1].Time <= t) {
			r.news.Wait()
		}
		r.mu.Unlock()
		r.setting.Lock()
		defer r.setting.Unlock()
		r.mu.Lock()
		mine := r.turn == turn && !r.ended
		r.mu.Unlock()
		if mine {
			_ = r.set(nil) // it fails with the process, which asks nobody then
		}
	}()
}

// set needs r.setting.
func (r *Prober) set(targets []netip.Addr) error {
	clean := make([]netip.Addr, len(targets))
	for i, t := range targets {
		clean[i] = t.Unmap()
	}
	r.mu.Lock()
	r.turn++
	r.spells = spellsWith(r.spells, now(), len(targets) > 0)
	r.mu.Unlock()
	r.news.Broadcast()
	ctx, cancel := context.WithTimeout(context.Background(), tellLimit)
	defer cancel()
	if _, err := r.p.ask(ctx, order{Op: "targets", Targets: clean, Every: r.every}); err != nil {
		return fmt.Errorf("set prober's targets: %w", err)
	}
	return nil
}

func (r *Prober) note(s *probed) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.until = s.Until
	r.replies = append(r.replies, s.Replies...)
	r.news.Broadcast()
}

// WaitFor waits until everything that happened before t (unix ns) is known here, which is at most
// about 100 ms later, and says whether it is: not where the prober has ended, where its process
// does not say a word for tellLimit, or where ctx ends.
func (r *Prober) WaitFor(ctx context.Context, t int64) bool {
	ctx, cancel := context.WithTimeout(ctx, time.Duration(max(t-now(), 0))+tellLimit)
	defer cancel()
	stop := context.AfterFunc(ctx, func() {
		r.mu.Lock() // whoever looked before ctx ended waits by now
		defer r.mu.Unlock()
		r.news.Broadcast()
	})
	defer stop()
	r.mu.Lock()
	defer r.mu.Unlock()
	for r.until < t && !r.ended && ctx.Err() == nil {
		r.news.Wait()
	}
	return r.until >= t
}

// Downtime is the network downtime of a window [from, to), unix ns: the longest
// time between two replies, from whichever target, among the times that overlap
// the window; each counts whole, by arrival, but for what of it nobody was asked. Without
// downtime it is about the probing interval. A time without reply that has not ended lasts until now,
// or until end (unix ns) where that is earlier: what came after it does not count.
// It is false if nobody was asked in the window, it lies in the future, or there never was a reply.
func (r *Prober) Downtime(from, to, end int64) (time.Duration, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return downtime(waitsOf(r.replies, r.spells, min(r.until, end)), from, to)
}

// Silence is the longest time in a window [from, to), unix ns, without a reply of any of some addresses:
// from the last one, or the window's begin, to the next one, also where that is later. end and the bool are
// as in Downtime, but that none of them need ever have replied.
func (r *Prober) Silence(addrs []netip.Addr, from, to, end int64) (time.Duration, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	var of []Reply
	for _, x := range r.replies {
		if x.Time >= from && slices.Contains(addrs, x.Target) {
			of = append(of, x)
		}
	}
	return silence(of, r.spells, from, to, min(r.until, end))
}

// Disown forgets what some addresses replied in [from, to), unix ns: another machine had them.
func (r *Prober) Disown(addrs []netip.Addr, from, to int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.replies = slices.DeleteFunc(r.replies, func(x Reply) bool { return x.Time >= from && x.Time < to && slices.Contains(addrs, x.Target) })
}

// ProbePoint is one step of a prober's picture.
type ProbePoint struct {
	Time int64 `json:"time"` // the step's begin, unix ns
	// RTT is the longest round trip of the replies in the step, 0 if there was none.
	RTT time.Duration `json:"rtt_ns"`
	// Wait is the longest time between replies that overlaps the step.
	Wait time.Duration `json:"wait_ns"`
	// Known: somebody was asked in the step, and there was a reply some time.
	Known bool `json:"known"`
}

// Series cuts [from, to) into steps, for a picture. end is as in Downtime.
func (r *Prober) Series(from, to, end int64, step time.Duration) []ProbePoint {
	r.mu.Lock()
	replies, until := slices.Clone(r.replies), min(r.until, end)
	waits := waitsOf(replies, r.spells, until)
	r.mu.Unlock()
	if step <= 0 {
		return nil
	}
	var out []ProbePoint
	k := 0 // the first reply of this step
	for t := from; t < min(to, until); t += int64(step) {
		next := t + int64(step)
		for k < len(replies) && replies[k].Time < t {
			k++
		}
		for len(waits) > 0 && waits[0].to <= t {
			waits = waits[1:]
		}
		p := ProbePoint{Time: t}
		for i := k; i < len(replies) && replies[i].Time < next; i++ {
			p.RTT = max(p.RTT, time.Duration(replies[i].Time-replies[i].Sent))
		}
		p.Wait, p.Known = downtime(waits, t, next)
		out = append(out, p)
	}
	return out
}

// Close ends the process. What is known stays readable.
func (r *Prober) Close() error { return r.p.close() }
