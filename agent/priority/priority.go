// Package priority is what an agent weighs among the programs of its host, by the phase of its migrations:
// less than guests while it copies, more while a guest stands still or its clients are led after it. It
// is the nice value of the agent's session, of which sched(7) says what it does. Without it a
// migration is slower, and not wrong.
package priority

import (
	"fmt"
	"maps"
	"os"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"godwit/migration"
)

// Nice values of the agent's session, where the kernel groups tasks by session (autogroup,
// sched(7)): a thread's own counts among its session alone there.
const (
	yields  = 5   // a third of a guest's weight, while memory or disks are copied: else those threads have as much as the guest that is served meanwhile
	presses = -10 // nine guests' weight, while a guest stands still, or is about to, or its clients are led after it: some milliseconds of work are all that they wait for
)

// Session has the agent's session weigh what the migration that is most urgent asks for, from Begin on. An
// agent that shares its session with other programs leaves it as it is, and so does one in a control
// group of its own: its weight is the administrator's to set. The zero value is ready for use, by many.
type Session struct {
	mu   sync.Mutex
	own  bool           // the session is the agent's alone
	want map[string]int // nice values, by migration; none asks for 0
	now  int
	// starved says that other programs leave nothing to who yields: nobody does any more, until
	// those who would have ended.
	starved bool
}

// Begin looks whose the session is, and has it weigh what was asked for until now.
func (p *Session) Begin() error {
	session, err := unix.Getsid(0)
	if err != nil {
		return fmt.Errorf("find the session: %w", err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.own = session == os.Getpid()
	return p.apply()
}

// Ask is for one migration, by its id, until it asks for another nice value, or is dropped.
func (p *Session) Ask(migration string, nice int) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.want == nil {
		p.want = map[string]int{}
	}
	p.want[migration] = nice
	return p.apply()
}

// Drop is for a migration that has ended.
func (p *Session) Drop(migration string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.want, migration)
	p.starved = p.starved && slices.Contains(slices.Collect(maps.Values(p.want)), yields)
	return p.apply()
}

// wanted is what the most urgent asks for; under mu.
func (p *Session) wanted() int {
	if len(p.want) == 0 {
		return 0
	}
	nice := slices.Min(slices.Collect(maps.Values(p.want)))
	if p.starved {
		nice = min(nice, 0)
	}
	return nice
}

// apply is under mu.
func (p *Session) apply() error {
	nice := p.wanted()
	if !p.own || nice == p.now {
		return nil
	}
	err := os.WriteFile("/proc/self/autogroup", []byte(strconv.Itoa(nice)), 0)
	if err != nil && !os.IsNotExist(err) {
		return fmt.Errorf("set the session's nice value to %d: %w", nice, err)
	}
	if p.now = nice; nice == yields {
		go p.watch()
	}
	return nil
}

const (
	starvedEvery = 20 * time.Millisecond
	starvedAfter = 250 * time.Millisecond // without a processor; under 80 ms where no other program computes
)

// watch looks, while the agent yields, whether it gets a processor at all. Linux (seen with 6.18)
// may leave a session of low weight without one for many seconds, while another computes on each:
// its copy would starve, and be given up.
func (p *Session) watch() {
	tick := time.NewTicker(starvedEvery)
	defer tick.Stop()
	for last := time.Now(); ; last = time.Now() {
		<-tick.C
		p.mu.Lock()
		if p.now != yields {
			p.mu.Unlock()
			return
		}
		if time.Since(last) > starvedAfter {
			p.starved = true
			p.apply() //nolint:errcheck // as slow as it was
		}
		p.mu.Unlock()
	}
}

// AtSource is the nice value that a migration asks for at its source; follows says that memory comes to a guest after
// it was let go, and copiesOn that one runs on in its switch, and is copied. That takes as much of a processor as a copy
// does, and the guest runs meanwhile, and is to answer.
func AtSource(s migration.Source, follows, copiesOn bool) int {
	switch {
	case s.InDoubt: // asked on, perhaps for hours
		return 0
	case s.Course == migration.Forward && follows && (s.Phase() == migration.Handover || s.Phase() == migration.Settle):
		return yields
	case s.Course == migration.Forward && copiesOn && s.Phase() == migration.Switch:
		return yields
	case s.Course == migration.Undoing, s.Phase() == migration.Switch, s.Phase() == migration.Handover:
		return presses
	case s.Phase() == migration.Seed, s.Phase() == migration.Copy:
		return yields
	}
	return 0
}

// AtDestination is the one that it asks for at its destination, where memory may follow as well.
func AtDestination(s migration.Destination, follows bool) int {
	switch {
	case s.Running() && follows && !s.Vanished:
		return yields
	case s.Landing == migration.Waiting && !s.Released:
		return yields
	case s.Released && !s.Vanished:
		return presses
	}
	return 0
}

// besideCopying is how many goroutines may run beside two threads that copy for each
// processor.
const besideCopying = 4

// RunBesideCopying lets the agent's goroutines run while threads that copy wait for a
// processor. Such a thread has a low priority, but keeps its place among the GOMAXPROCS
// that Go's scheduler runs at once: with a place for each processor, a few of them that
// wait behind a guest stop everything else that the agent does, the handover too.
func RunBesideCopying() {
	if os.Getenv("GOMAXPROCS") == "" {
		runtime.GOMAXPROCS(2*runtime.NumCPU() + besideCopying)
	}
}
