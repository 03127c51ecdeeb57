package lab

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"godwit/agent/leftover"
	"godwit/internal/clock"
	"godwit/lab/matrix"
	"godwit/migration"
	"godwit/netstate/netns"
	"godwit/vm"
)

const (
	lookEvery = 25 * time.Millisecond  // at QEMUs and at the migration's report
	lookLimit = 500 * time.Millisecond // of one question; a QEMU that switches over answers late
)

// watcher looks, during one cell, at who runs the guest and at what its agent says.
type watcher struct {
	w        *cellWorld
	watching *cellRun

	mu      sync.Mutex
	looks   int
	doubled int
	ranAt   map[string]bool // hosts on which a look found it running
	gone    time.Time       // when a look found no QEMU any more where it had come to run
	doubt   []doubtful
}

// doubtful is a stretch of time in which the source's agent said in_doubt.
type doubtful struct{ from, to time.Time }

// run looks until ctx ends.
func (l *watcher) run(ctx context.Context) {
	for clock.Sleep(ctx, lookEvery) {
		l.lookAtGuests(ctx)
		l.lookAtReport(ctx)
	}
}

// lookAtGuests asks every QEMU, and the first that ran once more: only one that ran
// before and after another was seen to run has run at the same time as that one. A look at which one that
// lives does not answer says nothing of it, and does not count.
func (l *watcher) lookAtGuests(ctx context.Context) {
	var running []string
	all := true
	for host, a := range l.w.agents {
		for dir := range a.qemus() {
			status := l.status(ctx, dir)
			if status == "" {
				_, lives := a.qemus()[dir]
				all = all && !lives
			}
			if status == vm.Running {
				running = append(running, dir)
				l.mu.Lock()
				l.ranAt[host] = true
				l.mu.Unlock()
			}
		}
	}
	both := len(running) > 1 && l.status(ctx, running[0]) == vm.Running
	l.mu.Lock()
	defer l.mu.Unlock()
	if both {
		l.doubled++
	}
	if to := l.watching.to; l.gone.IsZero() && l.ranAt[to.host.Name] && len(to.qemus()) == 0 {
		l.gone = time.Now()
	}
	if all || both {
		l.looks++
	}
}

// status asks a QEMU itself; "": it does not answer. Its monitor serves one at a time, so each look is short.
func (l *watcher) status(ctx context.Context, dir string) vm.Status {
	ctx, cancel := context.WithTimeout(ctx, lookLimit)
	defer cancel()
	status, err := lookOnce(ctx, dir)
	if err != nil {
		return ""
	}
	return status
}

// lookAtReport notes whether the migration is in doubt. An agent that is dead says
// nothing, and changes nothing.
func (l *watcher) lookAtReport(ctx context.Context) {
	id, from := l.watching.id, l.watching.from
	if id == "" || !from.runsAgent() {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, lookLimit)
	defer cancel()
	rep, err := from.client.Report(ctx, id)
	if err != nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	n := len(l.doubt)
	switch {
	case rep.Outcome != migration.InDoubt || rep.Ended != 0:
		if n > 0 && l.doubt[n-1].to.IsZero() {
			l.doubt[n-1].to = now
		}
	case n == 0 || !l.doubt[n-1].to.IsZero():
		l.doubt = append(l.doubt, doubtful{from: now})
	}
}

// ran says whether a look found the guest running on the host.
func (l *watcher) ran(host string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.ranAt[host]
}

// goneBefore says whether the guest's QEMU at the destination was gone by then, unix ns.
func (l *watcher) goneBefore(at int64) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return !l.gone.IsZero() && l.gone.UnixNano() < at
}

// fill puts what was seen into s, with times since the fault.
func (l *watcher) fill(s *matrix.Seen, zero time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	s.Looks, s.Doubled = l.looks, l.doubled
	for _, d := range l.doubt {
		if d.to.IsZero() {
			d.to = time.Now()
		}
		s.Doubt = append(s.Doubt, matrix.Span{From: d.from.Sub(zero).Seconds(), To: d.to.Sub(zero).Seconds()})
	}
	slices.Sort(s.Runs)
}

// left is what belongs to nothing on the hosts, or to what should be over.
func (c *cellRun) left(ctx context.Context) []string {
	var out []string
	for name, a := range c.agents {
		err := netns.Do(a.host.Namespace, func() error {
			things, err := leftover.Find(ctx, &a.config)
			for _, t := range things {
				if !c.mayStay(t, name) {
					out = append(out, name+": "+t.String())
				}
			}
			return err
		})
		if err != nil {
			out = append(out, name+": "+err.Error())
		}
		if c.runsOn(name) {
			continue
		}
		for dir, pid := range a.qemus() {
			out = append(out, fmt.Sprintf("%s: QEMU %d in %s", name, pid, filepath.Base(dir)))
		}
	}
	return out
}

// runsOn says whether the guest runs on that host, and there alone.
func (c *cellRun) runsOn(host string) bool { return len(c.seen.Runs) == 1 && c.seen.Runs[0] == host }

// mayStay says whether a thing on a host belongs to the guest that runs there, or is a disk that is all that there is
// of a guest that was ended, or of what it did there.
func (c *cellRun) mayStay(t leftover.Thing, host string) bool {
	return c.runsOn(host) && t.Owner == "guest "+cellGuest ||
		t.Kind == leftover.Disk && (len(c.seen.Runs) == 0 || c.seen.Word != "" && host == c.seen.To)
}
