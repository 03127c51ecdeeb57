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
		s.CPU = "max"
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
	if pid, alive := living(spec.Dir); alive {
		return nil, fmt.Errorf("dir %s: QEMU %d runs in it already", spec.Dir, pid)
	}
	removeSockets(spec.Dir)
	cmd, conn, touch, err := spawn(ctx, spec)
	if err != nil {
		removeSockets(spec.Dir)
		return nil, err
	}
	defer touch.Close()
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

// spawn runs QEMU with sockets that listen before it is there, so that no path has to be polled for: conn is to
// that of QMP. touch is to the guest's channel, and to be closed once QEMU answers: a port at which somebody was
// when its device was made counts as connected from then on, as it did at the source. Else QEMU tells the guest at its
// first instruction that somebody has come (virtio_serial_open of hw/char/virtio-serial-bus.c), which for an emulated
// one is some 15 ms of work before its clients hear of it.
func spawn(ctx context.Context, spec Spec) (cmd *exec.Cmd, conn, touch net.Conn, err error) {
	monitor, conn, err := listening(ctx, qmpSocket(spec.Dir))
	if err != nil {
		return nil, nil, nil, err
	}
	defer monitor.Close()
	channel, touch, err := listening(ctx, guestSocket(spec.Dir))
	if err != nil {
		conn.Close()
		return nil, nil, nil, err
	}
	defer channel.Close()
	if cmd, err = run(ctx, spec, monitor, channel); err != nil {
		conn.Close()
		touch.Close()
		return nil, nil, nil, err
	}
	return cmd, conn, touch, nil
}

// listening is a unix socket for a child to inherit, and a connection to it that waits for the child.
func listening(ctx context.Context, path string) (inherited *os.File, conn net.Conn, err error) {
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: path})
	if err != nil {
		return nil, nil, err
	}
	listener.SetUnlinkOnClose(false)
	defer listener.Close()
	if inherited, err = listener.File(); err != nil {
		return nil, nil, err
	}
	if conn, err = new(net.Dialer).DialContext(ctx, "unix", path); err != nil {
		inherited.Close()
		return nil, nil, err
	}
	return inherited, conn, nil
}

func run(ctx context.Context, spec Spec, monitor, channel *os.File) (*exec.Cmd, error) {
	log, err := os.OpenFile(qemuLog(spec.Dir), os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	cmd := exec.Command(Program, append(spec.args(), ackOptions(installed(ctx))...)...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.ExtraFiles = []*os.File{monitor, channel}
	for _, n := range spec.NICs {
		cmd.ExtraFiles = append(cmd.ExtraFiles, n.Tap)
	}
	cmd.Dir = spec.Dir
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	return cmd, cmd.Start()
}

// settle checks that QEMU is in the state that was asked for.
func (p *Process) settle(ctx context.Context, spec Spec) error {
	status, err := p.Status(ctx)
	if err != nil {
		return err
	}
	if spec.Incoming != (status == "inmigrate") {
		return fmt.Errorf("QEMU came up as %s", status)
	}
	return nil
}
