package qemu

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"

	"godwit/vm"
	"godwit/vm/qemu/qmp"
)

// A Looker asks the QEMU of one runtime directory what is true, beside whoever is in
// charge of it: by a monitor of its own, look.sock.
type Looker struct {
	PID int
	Dir string
	qmp *qmp.Client
}

// Look connects to the QEMU in dir. The error is ErrGone when there is none.
func Look(ctx context.Context, dir string) (*Looker, error) {
	pid, err := livingIn(dir)
	if err != nil {
		return nil, fmt.Errorf("look at guest in %s: %w", dir, err)
	}
	conn, err := new(net.Dialer).DialContext(ctx, "unix", lookSocket(dir))
	if err != nil {
		return nil, fmt.Errorf("look at guest in %s: %w", dir, err)
	}
	client, err := qmp.New(ctx, conn)
	if err != nil {
		return nil, fmt.Errorf("look at guest in %s: %w", dir, err)
	}
	return &Looker{PID: pid, Dir: dir, qmp: client}, nil
}

// Status is what QEMU says of its guest. The error is ErrGone when it lives no more.
func (l *Looker) Status(ctx context.Context) (vm.Status, error) {
	var s struct {
		Status vm.Status `json:"status"`
	}
	err := l.qmp.Do(ctx, "query-status", nil, &s)
	if errors.Is(err, qmp.ErrClosed) {
		err = fmt.Errorf("%w: %w", ErrGone, err)
	}
	return s.Status, err
}

// Sends is how far QEMU is with sending its guest. held says that it stops the guest for that only once its destination
// has acknowledged it (vm.HoldAck), and not by itself.
func (l *Looker) Sends(ctx context.Context) (status vm.MigrationStatus, held bool, err error) {
	var m struct {
		Status vm.MigrationStatus `json:"status"`
	}
	if err := l.qmp.Do(ctx, "query-migrate", nil, &m); err != nil {
		return "", false, err
	}
	held, err = capable(ctx, l.qmp, "switchover-ack")
	return m.Status, held, err
}

// Close lets go; QEMU goes on.
func (l *Looker) Close() error { return l.qmp.Close() }

// LivesIn is the process of the QEMU that lives in a runtime directory; false: none does. The error is that this is not
// known.
func LivesIn(dir string) (pid int, lives bool, err error) { return living(dir) }

// Living are the runtime directories below root in which a QEMU lives, with its process: one that Start left, or that a
// description's own command began.
func Living(root string) (map[string]int, error) {
	entries, err := os.ReadDir(root)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("look for guests: %w", err)
	}
	found := map[string]int{}
	for _, e := range entries {
		dir := filepath.Join(root, e.Name())
		pid, alive, err := living(dir)
		if err == nil && !alive {
			pid, err = listensIn(dir)
			alive = pid != 0
		}
		if err != nil {
			return nil, fmt.Errorf("look for guests: %w", err)
		}
		if alive {
			found[dir] = pid
		}
	}
	return found, nil
}

// listensIn is the QEMU that has the QMP socket of a runtime directory, 0 where none has: a description's own command
// need not write a pid file, nor name one. It is not dialled: who goes again stays before the agent's next try.
func listensIn(dir string) (int, error) {
	pid, err := holderOf(qmpSocket(dir))
	if err != nil {
		if listens, lerr := listensUnseen(qmpSocket(dir)); !listens && lerr == nil { // it has ended since
			return 0, nil
		}
		return 0, err
	}
	if pid == 0 {
		return 0, nil
	}
	return ifQEMU(pid)
}
