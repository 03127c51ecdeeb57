package qemu

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"godwit/vm/qemu/qmp"
)

// QEMU opens a disk by -drive for reading alone as it lets the guest go (auto-read-only, which is on there), by the name
// that it was given. It cannot where the name was relative and -daemonize had it change to /, where it has become a user
// who may not read the file, or where that was moved away. It then ends its stream with all of memory sent, and says
// "Bad address".

// againNode is the name of a node that is there for a moment.
const againNode = "godwit-again"

// closed says which disks QEMU could not open again so, each with why.
func (p *Process) closed(ctx context.Context, apart bool) ([]string, error) {
	inserted, err := p.inserted(ctx)
	if err != nil || p.opensNoneAgain() {
		return nil, err
	}
	var nodes []struct {
		File   string `json:"file"`
		Driver string `json:"drv"`
	}
	if err := p.qmp.Do(ctx, "query-named-block-nodes", map[string]any{"flat": true}, &nodes); err != nil {
		return nil, err
	}
	var found []string
	for _, m := range inserted {
		if m.ReadOnly || m.id == m.Node || !apart && p.finds(m.File) {
			continue
		}
		for _, n := range nodes {
			if n.File != m.File || n.Driver != "file" && n.Driver != "host_device" {
				continue
			}
			why, err := p.opens(ctx, n.Driver, n.File)
			if err != nil {
				return nil, err
			}
			if why != "" {
				found = append(found, fmt.Sprintf("disk %s: %s", m.id, why))
			}
			break
		}
	}
	return found, nil
}

// opensNoneAgain says whether who started QEMU has told it so; of which drive is not looked at.
func (p *Process) opensNoneAgain() bool {
	args, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", p.pid))
	return err == nil && strings.Contains(string(args), "auto-read-only=off")
}

// finds says whether a file is there for a QEMU whose rights and root directory are the agent's.
func (p *Process) finds(file string) bool {
	if !filepath.IsAbs(file) {
		file = fmt.Sprintf("/proc/%d/cwd/%s", p.pid, file)
	}
	_, err := os.Stat(file)
	return err == nil
}

// againWait bounds the wait for QEMU to close a file again, which it does later all the same.
const againWait = time.Second

// opens has QEMU open a file for reading, without a lock, and says why it cannot; "" if it can. What an agent left open that
// ended, or gave up, in the middle is closed first.
func (p *Process) opens(ctx context.Context, driver, file string) (string, error) {
	shut := func() error {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), againWait)
		defer cancel()
		return p.qmp.Do(ctx, "blockdev-del", map[string]any{"node-name": againNode}, nil)
	}
	_ = shut() // as a rule there is none
	err := p.qmp.Do(ctx, "blockdev-add", map[string]any{
		"driver": driver, "node-name": againNode, "filename": file, "read-only": true, "locking": "off",
	}, nil)
	var refused *qmp.Error
	if errors.As(err, &refused) {
		return strings.TrimSpace(refused.Desc), nil
	}
	if err != nil {
		_ = shut() // QEMU may still open it
		return "", err
	}
	return "", shut()
}
