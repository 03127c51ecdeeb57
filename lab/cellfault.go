package lab

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"syscall"
	"time"

	"godwit/internal/clock"
	"godwit/lab/hostroom"
	"godwit/lab/matrix"
	"godwit/lab/scenario"
	"godwit/lab/wan"
	"godwit/migration"
	"godwit/vm"
	"godwit/vm/guest"
)

// memoryLeft is what a destination that is out of memory still gets, bytes: less than
// any guest needs.
const memoryLeft = 8 << 20

// laterBy is how long after a phase's beginning its fault comes at most.
var laterBy = map[migration.Phase]time.Duration{
	migration.Check: 40 * time.Millisecond, migration.Prepare: 200 * time.Millisecond, migration.Seed: 300 * time.Millisecond,
	migration.Copy: 500 * time.Millisecond, migration.Switch: 25 * time.Millisecond, migration.Handover: 150 * time.Millisecond,
	migration.Settle: 10 * time.Millisecond,
}

// inject makes the cell's fault.
func (c *cellRun) inject(ctx context.Context) error {
	switch c.cell.Fault {
	case matrix.KillSourceAgent:
		return c.killAgents(c.from)
	case matrix.KillDestinationAgent:
		return c.killAgents(c.to)
	case matrix.KillBothAgents:
		return c.killAgents(c.from, c.to)
	case matrix.KillSourceQEMU:
		return c.killGuest(ctx, c.from)
	case matrix.KillDestinationQEMU:
		return c.killGuest(ctx, c.to)
	case matrix.Cut3s, matrix.Cut20s, matrix.CutForGood:
		return c.breakLinks(scenario.AllUplinks, func(l *wan.Link) { l.Cut = wan.CutBoth })
	case matrix.CutOneUplink:
		return c.breakLinks(cellUplink, func(l *wan.Link) { l.Cut = wan.CutBoth })
	case matrix.HalfOpenOut: // in a link, a is the site
		return c.breakLinks(scenario.AllUplinks, func(l *wan.Link) { l.Cut = wan.CutAB })
	case matrix.HalfOpenIn:
		return c.breakLinks(scenario.AllUplinks, func(l *wan.Link) { l.Cut = wan.CutBA })
	case matrix.Loss30:
		return c.breakLinks(scenario.AllUplinks, func(l *wan.Link) { l.Loss = 0.3 })
	case matrix.DiskFullSource:
		return c.fillDisk(c.from)
	case matrix.DiskFullDestination:
		return c.fillDisk(c.to)
	case matrix.OutOfMemory:
		return c.starve()
	case matrix.GuestPowerOff:
		return c.endGuest(ctx, "poweroff", struct{}{})
	case matrix.GuestReboot:
		return c.endGuest(ctx, "reboot", struct{}{})
	case matrix.GuestPanic:
		return c.endGuest(ctx, "exec", guest.Exec{Command: "(sleep 0.1; echo c >/proc/sysrq-trigger) >/dev/null 2>&1 &"})
	case matrix.ClockSource:
		return c.step(c.from, time.Hour)
	case matrix.ClockDestination:
		return c.step(c.to, -time.Hour)
	case matrix.RebootSource:
		return c.rebootHost(ctx, c.from)
	case matrix.RebootDestination:
		return c.rebootHost(ctx, c.to)
	}
	return fmt.Errorf("fault %s: not known", c.cell.Fault)
}

// later notes how the fault is mended.
func (c *cellRun) later(undo func() error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.undo = append(c.undo, undo)
}

// mend takes the fault back. What ends with the cell, such as a stepped clock, stays
// (atEnd).
func (c *cellRun) mend() error {
	c.mu.Lock()
	undo := c.undo
	c.undo = nil
	c.mu.Unlock()
	if len(undo) == 0 {
		return nil
	}
	var errs []error
	for _, f := range undo {
		errs = append(errs, f())
	}
	c.mu.Lock()
	c.through = time.Now()
	c.mu.Unlock()
	return errors.Join(errs...)
}

func (c *cellRun) killAgents(agents ...*hostAgent) error {
	var errs []error
	for _, a := range agents {
		c.mu.Lock()
		c.planned[a.host.Name] = true
		c.mu.Unlock()
		errs = append(errs, a.kill())
	}
	return errors.Join(errs...)
}

func (c *cellRun) breakLinks(uplink string, change func(*wan.Link)) error {
	var f linkFaults
	undo, err := f.add(c.spec().Sites, c.topo, c.from.host.Site, uplink, change)
	if err == nil {
		c.later(undo)
	}
	return err
}

func (c *cellRun) fillDisk(a *hostAgent) error {
	dir := a.config.State
	c.later(func() error { return hostroom.EmptyState(dir) })
	return hostroom.FillState(dir)
}

func (c *cellRun) step(a *hostAgent, d time.Duration) error {
	name := a.host.Name
	c.atEnd = append(c.atEnd, func() error { return c.stepClock(name, 0) })
	return c.stepClock(name, d)
}

// killGuest kills the guest's QEMU on a host. The guest is ended by that if it ran
// there, or waited at the source to be sent whole.
func (c *cellRun) killGuest(ctx context.Context, a *hostAgent) error {
	qemus := a.qemus()
	if len(qemus) == 0 {
		c.note("no QEMU was there to be killed")
	}
	for dir, pid := range qemus {
		status, err := lookOnce(ctx, dir)
		if err != nil {
			c.note("the killed QEMU did not answer: %v", err)
		}
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
			return err
		}
		c.note("the killed QEMU was %s", orWords(string(status), "silent"))
		c.endedBy(a, status)
	}
	return nil
}

// endedBy notes whether the end of a QEMU in that state may be the guest's.
func (c *cellRun) endedBy(a *hostAgent, status vm.Status) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if a == c.from {
		c.ends = c.ends || status != vm.PostMigrate
		return
	}
	c.ends = c.ends || status == vm.Running || c.look.ran(a.host.Name)
}

// starve lets the destination have no more memory. Whom the kernel kills is its choice.
func (c *cellRun) starve() error {
	pid, err := c.to.agentPID()
	if err != nil {
		return err
	}
	pids := []int{pid}
	for _, q := range c.to.qemus() {
		pids = append(pids, q)
	}
	c.mu.Lock()
	c.planned[c.to.host.Name] = true
	c.mu.Unlock()
	group, err := hostroom.Starve(c.world.id, memoryLeft, pids...)
	if err != nil {
		return err
	}
	c.later(func() error {
		if c.look.ran(c.to.host.Name) && len(c.to.qemus()) == 0 {
			c.mu.Lock()
			c.ends = true
			c.mu.Unlock()
			c.note("the kernel killed the QEMU that ran the guest")
		}
		return group.Feed()
	})
	return nil
}

// endLimit is how long a guest may not be reachable for the order to end itself: in
// the switch it stands still, and after it the destination reaches it first.
const endLimit = 3 * time.Second

// endGuest has the guest end itself, wherever it runs. An order whose answer is not heard,
// as the guest was paused then or has gone, may be carried out all the same.
func (c *cellRun) endGuest(ctx context.Context, how string, params any) error {
	ctx, cancel := context.WithTimeout(ctx, endLimit)
	defer cancel()
	told := func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.ends = true
	}
	said := false
	for {
		for _, host := range []*hostAgent{c.from, c.to} {
			ask, done := context.WithTimeout(ctx, time.Second)
			err := host.client.CallGuest(ask, cellGuest, how, params, nil)
			done()
			if err == nil {
				told()
				return nil
			}
			var problem *migration.Problem
			if !errors.As(err, &problem) || problem.Code != migration.CodeUnknownGuest {
				said = true
			}
			if strings.Contains(err.Error(), "closed") && len(c.runs(ctx)) == 0 { // it went before it had answered
				told()
				return nil
			}
		}
		if !clock.Sleep(ctx, 20*time.Millisecond) {
			if said {
				told()
				c.note("the guest was told to end, and its answer was not heard")
			} else {
				c.note("the guest could not be told to end")
			}
			return nil
		}
	}
}
