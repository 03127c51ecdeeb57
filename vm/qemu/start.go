package qemu

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"syscall"
	"time"

	"godwit/vm"
	"godwit/vm/qemu/qmp"
)

// startLimit bounds the time until QEMU answers. It takes 0.2 s on an idle machine.
const startLimit = 60 * time.Second

// Start starts a guest's QEMU and waits until it answers. The guest runs on success,
// unless spec.Incoming: then it waits. The process has its own session and no tie to
// this one. On error no process and no socket is left; a directory that Start made is
// removed, in one that was there the logs stay.
func Start(ctx context.Context, spec Spec) (*Process, error) {
	spec = spec.withDefaults()
	if err := spec.check(); err != nil {
		return nil, fmt.Errorf("start guest %q: %w", spec.Name, err)
	}
	made, err := makeDir(spec.Dir)
	if err != nil {
		return nil, fmt.Errorf("start guest %s: %w", spec.Name, err)
	}
	p, err := start(ctx, spec)
	if err != nil {
		if made {
			os.RemoveAll(spec.Dir)
		}
		return nil, fmt.Errorf("start guest %s: %w", spec.Name, err)
	}
	return p, nil
}

func (s Spec) withDefaults() Spec {
	if s.Accel == "" {
		s.Accel = ProbeAccel()
	}
	if s.CPU == "" {
		s.CPU = emulatedCPU
		if s.Accel == "kvm" {
			s.CPU = "host,migratable=on"
		}
	}
	if s.Machine == "" {
		s.Machine = "q35"
	}
	if s.Port == "" {
		s.Port = GuestPort
	}
	s.VCPUs = max(s.VCPUs, 1)
	return s
}

func makeDir(dir string) (made bool, err error) {
	switch _, err := os.Stat(dir); {
	case err == nil:
		return false, nil
	case !errors.Is(err, os.ErrNotExist):
		return false, err
	}
	return true, os.MkdirAll(dir, 0o700)
}

func start(ctx context.Context, spec Spec) (p *Process, err error) {
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	pid, alive, err := living(spec.Dir)
	if err != nil {
		return nil, fmt.Errorf("dir %s: %w", spec.Dir, err)
	}
	if alive {
		return nil, fmt.Errorf("dir %s: QEMU %d runs in it already", spec.Dir, pid)
	}
	removeSockets(spec.Dir)
	cmd, conn, err := spawn(ctx, spec)
	if err != nil {
		removeSockets(spec.Dir)
		return nil, err
	}
	p, err = begin(ctx, spec, cmd, conn)
	if err != nil {
		removeSockets(spec.Dir)
		if said := firstComplaint(qemuLog(spec.Dir)); said != "" && ctx.Err() == nil {
			err = errors.New(said)
		}
		return nil, err
	}
	return p, nil
}

// begin waits for QEMU's greeting and takes charge of the process; on error it is gone.
func begin(ctx context.Context, spec Spec, cmd *exec.Cmd, conn net.Conn) (*Process, error) {
	client, err := qmp.New(ctx, conn)
	if err != nil {
		cmd.Process.Kill()
		cmd.Wait()
		return nil, err
	}
	p, err := watch(cmd.Process.Pid, spec.Dir, client)
	if err != nil {
		client.Close()
		cmd.Process.Kill()
		cmd.Wait()
		return nil, err
	}
	p.begin(cmd)
	if err := p.settle(ctx, spec); err != nil {
		_ = p.Kill()
		return nil, err
	}
	return p, nil
}

// spawn runs QEMU with a listening QMP socket that it inherits, and connects to that
// socket before QEMU is there: no polling for a path to appear.
func spawn(ctx context.Context, spec Spec) (*exec.Cmd, net.Conn, error) {
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: qmpSocket(spec.Dir)})
	if err != nil {
		return nil, nil, err
	}
	listener.SetUnlinkOnClose(false)
	defer listener.Close()
	inherited, err := listener.File()
	if err != nil {
		return nil, nil, err
	}
	defer inherited.Close()
	log, err := os.OpenFile(qemuLog(spec.Dir), os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, nil, err
	}
	defer log.Close()

	const qmpFD, tapFD = 3, 4 // ExtraFiles begin at 3
	cmd := exec.Command(Program, append(spec.args(qmpFD, tapFD), ackOptions(installed(ctx))...)...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.ExtraFiles = []*os.File{inherited}
	for _, n := range spec.NICs {
		cmd.ExtraFiles = append(cmd.ExtraFiles, n.Tap)
	}
	cmd.Dir = spec.Dir
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	conn, err := new(net.Dialer).DialContext(ctx, "unix", qmpSocket(spec.Dir))
	if err != nil {
		return nil, nil, err
	}
	if err := cmd.Start(); err != nil {
		conn.Close()
		return nil, nil, err
	}
	return cmd, conn, nil
}

// settle checks that QEMU is in the state that was asked for.
func (p *Process) settle(ctx context.Context, spec Spec) error {
	status, err := p.Status(ctx)
	if err != nil {
		return err
	}
	if spec.Incoming != (status == vm.Incoming) {
		return fmt.Errorf("QEMU came up as %s", status)
	}
	return nil
}
