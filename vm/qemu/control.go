package qemu

import (
	"context"
	"fmt"
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"godwit/internal/oneline"
	"godwit/vm"
	"godwit/vm/qemu/qmp"
)

// Status returns the guest's run state.
func (p *Process) Status(ctx context.Context) (vm.Status, error) {
	var s struct {
		Status vm.Status `json:"status"`
	}
	err := p.qmp.Do(ctx, "query-status", nil, &s)
	return vm.Status(oneline.Of(string(s.Status))), err
}

// Stop pauses the guest, and makes sure that it was us who paused it: a guest that QEMU
// stopped for its switchover would be started again by QEMU if the migration fails.
//
// A migration held by switchover-ack alone is released by the stop itself, and too early:
// QEMU sets the run state, then waits for its processors without its lock (do_vm_stop,
// pause_all_vcpus); its migration thread sees a guest that does not run, needs no
// acknowledgement (migration_can_switchover), takes the lock, stops nothing, since the state
// is no longer "running" (vm_stop_force_state), and looks for the last time at which pages
// are dirty, while a processor that the host did not let run may still write. What it writes
// then is lost. So every hold has pause-before-switchover as well: the thread waits for
// ReleaseSwitchover, which comes after Stop. The stop is ours in that case too, as long as
// nobody allowed the switchover before. A failed migration then leaves the guest paused.
//
// QEMU is content with a stop of a guest that stands still, so it is asked first. The migration of a
// guest that somebody else paused needs no acknowledgement either, and has come to the fence. What
// QEMU stopped by itself before, it has run on as the migration is cancelled (migration_iteration_finish).
func (p *Process) Stop(ctx context.Context) error {
	was, err := p.Status(ctx)
	if err != nil {
		return fmt.Errorf("stop guest: %w: %w", vm.ErrUnasked, err)
	}
	if was != vm.Running {
		return vm.StoodError{Status: was}
	}
	if err := p.qmp.Do(ctx, "stop", nil, nil); err != nil {
		return err
	}
	got, err := p.Status(ctx)
	if err != nil {
		return err
	}
	switch got {
	case vm.Paused:
		return nil
	case vm.FinishMigrate, vm.PostMigrate:
		held, err := p.capable(ctx, "switchover-ack")
		if err != nil || held {
			return err
		}
	}
	return fmt.Errorf("stop guest: it is %s, not %s", got, vm.Paused)
}

// capable says whether a migration capability is set. It asks QEMU, because the migration
// may be older than this connection.
func (p *Process) capable(ctx context.Context, name string) (bool, error) {
	return capable(ctx, p.qmp, name)
}

func capable(ctx context.Context, client *qmp.Client, name string) (bool, error) {
	var caps []capability
	if err := client.Do(ctx, "query-migrate-capabilities", nil, &caps); err != nil {
		return false, err
	}
	return slices.Contains(caps, capability{name, true}), nil
}

// Cont lets the guest run. A guest that was sent away (postmigrate) runs again too: only
// the one who holds the right to run it may ask for that.
func (p *Process) Cont(ctx context.Context) error {
	p.fetching.Wait()
	if err := p.qmp.Do(ctx, "cont", nil, nil); err != nil {
		return err
	}
	got, err := p.Status(ctx)
	if err == nil && got != vm.Running {
		err = fmt.Errorf("cont guest: it is %s, not %s", got, vm.Running)
	}
	return err
}

// Quit asks QEMU to end, and kills it when it hasn't within 3 seconds or ctx ends. On
// success the process is gone and its sockets are removed; the logs stay.
func (p *Process) Quit(ctx context.Context) error {
	asked, cancel := context.WithTimeout(ctx, quitLimit)
	defer cancel()
	if p.qmp.Do(asked, "quit", nil, nil) == nil {
		select {
		case <-p.done:
		case <-asked.Done():
		}
	}
	return p.Kill()
}

// Kill ends the process by force and waits until it is gone, at most 10 seconds. After
// Close it does nothing to a process that lives: os.ErrClosed.
func (p *Process) Kill() error {
	if p.Alive() {
		if p.letGo.Load() {
			return fmt.Errorf("kill QEMU %d: let go of: %w", p.pid, os.ErrClosed)
		}
		if err := p.signal(unix.SIGKILL); err != nil {
			return fmt.Errorf("kill QEMU %d: %w", p.pid, err)
		}
		select {
		case <-p.done:
		case <-time.After(killLimit):
			return fmt.Errorf("kill QEMU %d: still there after %v", p.pid, killLimit)
		}
	}
	p.Close()
	if p.dir != "" {
		removeSockets(p.dir)
	}
	return nil
}

// signal goes to this very process: a pidfd can't mean another one with the same number.
func (p *Process) signal(sig unix.Signal) error {
	raw, err := p.pidfd.SyscallConn()
	if err != nil {
		return err
	}
	var sent error
	if err := raw.Control(func(fd uintptr) { sent = unix.PidfdSendSignal(int(fd), sig, nil, 0) }); err != nil {
		return err
	}
	if sent == unix.ESRCH {
		return nil
	}
	return sent
}

func removeSockets(dir string) {
	for _, path := range []string{qmpSocket(dir), lookSocket(dir), guestSocket(dir), pidFile(dir)} {
		os.Remove(path)
	}
}
