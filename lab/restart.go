package lab

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"godwit/agent/api"
	"godwit/internal/clock"
	"godwit/lab/scenario"
	"godwit/migration"
	"godwit/netstate/netns"
	"godwit/vm"
)

// bootAgain boots a guest whose QEMU was killed, on the host where that was, as what watches
// over a host's guests would: some time later, when its migration has its outcome, and only
// if no host has the guest by then. One that runs elsewhere, or may, is left alone.
func (r *run) bootAgain(ctx context.Context, k *scenario.Kill, host *hostAgent) error {
	m := r.current(k.QEMU)
	if !r.due(ctx, k.RestartAfter) {
		return context.Canceled
	}
	if m != nil && !r.comes(ctx, m.done) {
		return context.Canceled
	}
	if m != nil && m.report != nil && m.report.Outcome == migration.InDoubt {
		return fmt.Errorf("guest %s is not booted again: in doubt where it runs", k.QEMU)
	}
	on, dead, err := r.whoHas(ctx, k.QEMU, host)
	if err != nil {
		return fmt.Errorf("guest %s is not booted again: %w", k.QEMU, err)
	}
	if on != "" {
		r.tell(fmt.Sprintf("guest %s runs on %s; it is not booted again", k.QEMU, on))
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, bootLimit)
	defer cancel()
	if dead {
		if err := r.onceThere(ctx, host, func() error { return host.client.StopGuest(ctx, k.QEMU) }); err != nil {
			return err
		}
	}
	i := slices.IndexFunc(r.w.scenario.Guests, func(g scenario.Guest) bool { return g.Name == k.QEMU })
	d := r.w.describe(i, r.w.scenario.Guests[i])
	if d.Disks, err = r.w.disksLeft(r.w.scenario.Guests[i], host.host.Name); err != nil {
		return err
	}
	r.bootsAgain(k.QEMU)
	err = r.onceThere(ctx, host, func() error {
		_, err := host.client.StartGuest(ctx, d)
		return err
	})
	if err != nil {
		return booted(k.QEMU, err)
	}
	r.w.moved(k.QEMU, host.host.Name)
	r.tell(fmt.Sprintf("guest %s was booted again on %s", k.QEMU, host.host.Name))
	return nil
}

// toBoot notes that a guest whose QEMU on a host was killed is to boot again there, until that is over.
func (r *run) toBoot(guest string, host *hostAgent) (over func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.booting == nil {
		r.booting = map[string][]*hostAgent{}
	}
	r.booting[guest] = append(r.booting[guest], host)
	return func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		i := slices.Index(r.booting[guest], host)
		r.booting[guest] = slices.Delete(r.booting[guest], i, i+1)
	}
}

// isToBoot says whether a guest is to boot again, or does just now, that no host has: not one of which another QEMU was
// killed, as at the destination of a migration that failed.
func (r *run) isToBoot(ctx context.Context, guest string) bool {
	here := r.w.agentOf(guest)
	r.mu.Lock()
	boots, its := len(r.booting[guest]) > 0, slices.Contains(r.booting[guest], here)
	r.mu.Unlock()
	if !boots || its {
		return its
	}
	_, err := here.qemuPID(ctx, guest)
	return errors.Is(err, errNoQEMU)
}

// deadWait is how long an agent may take to see that a guest's QEMU is gone.
const deadWait = 5 * time.Second

// whoHas is the host that has the guest; "": none. dead says that killed has it still, without
// its QEMU.
func (r *run) whoHas(ctx context.Context, name string, killed *hostAgent) (on string, dead bool, err error) {
	for until := (time.Time{}); ; {
		on, dead = "", false
		for _, a := range r.w.agents {
			pid, has, err := r.guestOn(ctx, name, a, a != killed)
			switch {
			case err != nil:
				return "", false, fmt.Errorf("host %s: %w", a.host.Name, err)
			case !has:
			case a == killed && errors.Is(syscall.Kill(pid, 0), syscall.ESRCH):
				dead = true
			default:
				on = a.host.Name
			}
		}
		if until.IsZero() { // from when all have answered
			until = time.Now().Add(deadWait)
		}
		if on != killed.host.Name || time.Now().After(until) || !clock.Sleep(ctx, 100*time.Millisecond) {
			return on, dead, ctx.Err()
		}
	}
}

// guestOn says whether a host has the guest, and by which process, as its agent tells. One that comes up is awaited, as
// it may end what a migration left there. Of another that does not answer, look has the lab see for itself whether a
// QEMU there runs the guest: one that does not is what a migration left, or may run it yet.
func (r *run) guestOn(ctx context.Context, name string, a *hostAgent, look bool) (pid int, has bool, err error) {
	for {
		ask, cancel := context.WithTimeout(ctx, deadWait)
		info, err := a.client.Host(ask)
		cancel()
		switch {
		case err == nil:
			i := slices.IndexFunc(info.Guests, func(g api.GuestInfo) bool { return g.Name == name })
			if i < 0 {
				return 0, false, nil
			}
			return info.Guests[i].PID, true, nil
		case !api.Unanswered(err):
			return 0, false, err
		case a.comesUp():
			if !r.due(ctx, 100*time.Millisecond) {
				return 0, false, context.Canceled
			}
		case look:
			if pid, has = qemusIn(netns.Processes(a.host.Namespace))[name]; !has {
				return 0, false, nil
			}
			if status, _, _ := a.standsOf(ctx, name); status != vm.Running {
				return 0, false, errors.New("a QEMU of it is there that does not run it, as far as is seen, and the agent is gone")
			}
			return pid, true, nil
		default:
			return 0, false, err
		}
	}
}

// disksLeft are a guest's disks as they were left on a host.
func (w *world) disksLeft(g scenario.Guest, host string) ([]vm.Disk, error) {
	var out []vm.Disk
	for i := range g.Disks {
		disk := vm.Disk{ID: fmt.Sprintf("disk%d", i), Format: "raw"}
		files, err := fs.Glob(os.DirFS(w.disksOf(host)), g.Name+"-*-"+disk.ID+".raw")
		files = slices.DeleteFunc(files, func(f string) bool { return guestOfDisk(f) != g.Name })
		if err != nil || len(files) != 1 {
			return nil, fmt.Errorf("guest %s: %d files of its disk %s are on %s; it cannot be booted again", g.Name, len(files), disk.ID, host)
		}
		disk.Path = filepath.Join(w.disksOf(host), files[0])
		out = append(out, disk)
	}
	return out, nil
}
