package describe

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"godwit/agent/limits"
	"godwit/netstate/hold"
	"godwit/vm/qemu"
)

// Look asks the QEMU that listens on a QMP socket, of which nobody else is a client, and the
// kernel about its process. Nothing of it is changed.
func Look(ctx context.Context, socket string) (Running, error) {
	socket, err := filepath.Abs(socket)
	if err != nil {
		return Running{}, err
	}
	ctx, cancel := limits.Adopt.On(ctx)
	defer cancel()
	machine, err := qemu.AttachSocket(ctx, socket, 0, "")
	if errors.Is(err, context.DeadlineExceeded) {
		return Running{}, fmt.Errorf("QEMU does not answer on %s; give it a QMP socket that nobody else uses", socket)
	}
	if err != nil {
		return Running{}, err
	}
	defer machine.Close()
	r := Running{QMP: socket, User: os.Geteuid()}
	if r.Words, err = machine.CommandLine(); err != nil {
		return Running{}, err
	}
	if r.Facts, err = machine.Facts(ctx); err != nil {
		return Running{}, err
	}
	if r.Cards, err = machine.Cards(ctx); err != nil {
		return Running{}, err
	}
	if r.Devices, err = machine.Devices(ctx); err != nil {
		return Running{}, err
	}
	if r.Chardevs, err = machine.Chardevs(ctx); err != nil {
		return Running{}, err
	}
	if r.Taps, err = hold.Taps(machine.PID()); err != nil {
		return Running{}, err
	}
	if r.Open, err = open(machine.PID()); err != nil {
		return Running{}, err
	}
	r.Dir, err = os.Readlink(fmt.Sprintf("/proc/%d/cwd", machine.PID()))
	return r, err
}

// open are the files that a process has open.
func open(pid int) (files []string, err error) {
	dir := fmt.Sprintf("/proc/%d/fd", pid)
	all, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	for _, fd := range all {
		if at, err := os.Readlink(filepath.Join(dir, fd.Name())); err == nil && filepath.IsAbs(at) { // or it is closed meanwhile
			files = append(files, at)
		}
	}
	return files, nil
}
