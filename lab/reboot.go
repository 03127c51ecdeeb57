package lab

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"

	"godwit/agent/api"
	"godwit/lab/topo"
	"godwit/netstate"
	"godwit/netstate/netns"
)

// reboot takes from a host, at once, all that it loses when it reboots: every process in it,
// what agents made in its kernel, its run directory. Its state directory stays, and its
// own network, which its system sets up as it boots. Its agent is not started.
func (h *hostAgent) reboot() error {
	h.mu.Lock()
	done := h.done
	h.mu.Unlock()
	for until := time.Now().Add(10 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		pids := netns.Processes(h.host.Namespace)
		if len(pids) == 0 {
			break
		}
		if time.Now().After(until) {
			return fmt.Errorf("reboot %s: processes %v do not end", h.host.Name, pids)
		}
		for _, pid := range pids {
			if err := syscall.Kill(pid, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
				return fmt.Errorf("reboot %s: %w", h.host.Name, err)
			}
		}
	}
	<-done
	err := errors.Join(topo.DropDevices(h.host.Namespace, "gw"), netns.Do(h.host.Namespace, func() error {
		_, err := netstate.CleanUp(nil)
		return err
	}))
	if err != nil {
		return fmt.Errorf("reboot %s: %w", h.host.Name, err)
	}
	return os.RemoveAll(h.config.Run)
}

// rebootHost reboots a cell's host. The guest is ended by that as by the end of its QEMU there.
func (c *cellRun) rebootHost(ctx context.Context, a *hostAgent) error {
	for dir := range a.qemus() {
		status, err := lookOnce(ctx, dir)
		if err != nil {
			c.note("the QEMU of the host that rebooted did not answer: %v", err)
		}
		c.note("the QEMU of the host that rebooted was %s", orWords(string(status), "silent"))
		c.endedBy(a, status)
	}
	c.mu.Lock()
	c.planned[a.host.Name] = true
	c.mu.Unlock()
	return a.reboot()
}

// wordAfter is how long a doubt of the kind that only a person ends is left to itself.
const wordAfter = 3 * time.Second

// decide says a person's word where only that can end the doubt: the destination itself
// says that its QEMU is gone, and that it may have run the guest.
func (c *cellRun) decide(ctx context.Context) {
	c.mu.Lock()
	zero, away := c.zero, c.planned[c.from.host.Name]
	c.mu.Unlock()
	if c.seen.Word != "" || !c.cell.Kind().Ends || away || time.Since(zero) < c.cell.Kind().Lasts+c.cell.Kind().Away()+wordAfter {
		return
	}
	ask, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	doubts, err := c.from.client.Doubts(ask, c.id)
	if err != nil || len(doubts) != 1 || !doubts[0].Proven {
		return
	}
	if err := c.from.client.TakeBack(ctx, c.id, api.TakeBack{}); err != nil {
		c.note("take back: %v", err)
		return
	}
	c.seen.Word, c.seen.WordS = "take back", c.since(time.Now())
	c.mu.Lock()
	c.ends = false // it runs on, from the moment of the switch
	c.mu.Unlock()
	kept := c.disksOf(c.to.host.Name)
	c.atEnd = append(c.atEnd, func() error { return os.RemoveAll(kept) })
}
