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

	mu      sync.Mutex
	news    *sync.Cond
	ended   bool
	until   int64   // everything before is known, unix ns
	replies []Reply // in the order of their arrival
	counts  map[netip.Addr]Probes
}

// Probes counts what was asked of one address. The answers to the last ones
// may still be on their way.
type Probes struct {
	Sent     int64 `json:"sent"`
	Answered int64 `json:"answered"`
}

// StartProber starts a prober's process in the namespace; each target is asked
// every interval (0 is 10 ms), beginning with SetTargets. It ends like a Client.
func StartProber(ctx context.Context, namespace string, every time.Duration) (*Prober, error) {
	if every <= 0 {
		every = defaultEvery
	}
	r := &Prober{every: every, counts: map[netip.Addr]Probes{}}
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

// SetTargets replaces the addresses that are asked from now on.
func (r *Prober) SetTargets(targets []netip.Addr) error {
	clean := make([]netip.Addr, len(targets))
	for i, t := range targets {
		clean[i] = t.Unmap()
	}
	if _, err := r.p.ask(order{Op: "targets", Targets: clean, Every: r.every}); err != nil {
		return fmt.Errorf("set prober's targets: %w", err)
	}
	return nil
}

func (r *Prober) note(s *probed) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.until = s.Until
	r.replies = append(r.replies, s.Replies...)
	for a, n := range s.Sent {
		c := r.counts[a]
		c.Sent += n
		r.counts[a] = c
	}
	for _, x := range s.Replies {
		c := r.counts[x.Target]
		c.Answered++
		r.counts[x.Target] = c
	}
	r.news.Broadcast()
}

// WaitFor returns when everything that happened before t (unix ns) is known
// here, which is at most about 100 ms later, or the prober has ended.
func (r *Prober) WaitFor(t int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for r.until < t && !r.ended {
		r.news.Wait()
	}
}

// Downtime is the network downtime of a window [from, to), unix ns: the longest
// time between two replies, from whichever target, among the times that overlap
// the window; each counts whole, by arrival. Without downtime it is about the
// probing interval. A time without reply that has not ended lasts until now.
// It is false if there was no reply before the window ended or it lies in the future.
func (r *Prober) Downtime(from, to int64) (time.Duration, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return downtime(r.replies, r.until, from, to)
}

func downtime(replies []Reply, until, from, to int64) (time.Duration, bool) {
	if len(replies) == 0 || replies[0].Time >= to || to <= from || from > until {
		return 0, false
	}
	var longest int64
	for i, x := range replies {
		next := until
		if i+1 < len(replies) {
			next = replies[i+1].Time
		}
		if x.Time < to && next > from {
			longest = max(longest, next-x.Time)
		}
	}
	return time.Duration(longest), true
}

// Replies returns the replies that arrived in [from, to), unix ns, in order.
func (r *Prober) Replies(from, to int64) []Reply {
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []Reply
	for _, x := range r.replies {
		if x.Time >= from && x.Time < to {
			out = append(out, x)
		}
	}
	return out
}

// ProbePoint is one step of a prober's picture.
type ProbePoint struct {
	Time int64 `json:"time"` // the step's begin, unix ns
	// RTT is the longest round trip of the replies in the step, 0 if there was none.
	RTT time.Duration `json:"rtt_ns"`
	// Wait is the longest time between replies that overlaps the step.
	Wait time.Duration `json:"wait_ns"`
}

// Series cuts [from, to) into steps, for a picture.
func (r *Prober) Series(from, to int64, step time.Duration) []ProbePoint {
	r.mu.Lock()
	replies, until := slices.Clone(r.replies), r.until
	r.mu.Unlock()
	if step <= 0 {
		return nil
	}
	var out []ProbePoint
	k := 0 // the first reply of this step
	for t := from; t < min(to, until); t += int64(step) {
		end := t + int64(step)
		for k < len(replies) && replies[k].Time < t {
			k++
		}
		p := ProbePoint{Time: t}
		last := k
		for ; last < len(replies) && replies[last].Time < end; last++ {
			p.RTT = max(p.RTT, time.Duration(replies[last].Time-replies[last].Sent))
		}
		p.Wait, _ = downtime(replies[max(0, k-1):min(last+1, len(replies))], until, t, end)
		out = append(out, p)
	}
	return out
}

// Probes counts probes and answers of each address asked so far.
func (r *Prober) Probes() map[netip.Addr]Probes {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := make(map[netip.Addr]Probes, len(r.counts))
	for a, c := range r.counts {
		out[a] = c
	}
	return out
}

// Close ends the process. What is known stays readable.
func (r *Prober) Close() error { return r.p.close() }
