package qemu

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

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
	if err != nil {
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

// finds says whether a file is there for a QEMU whose rights and root directory are the agent's.
func (p *Process) finds(file string) bool {
	if !filepath.IsAbs(file) {
		file = fmt.Sprintf("/proc/%d/cwd/%s", p.pid, file)
	}
	_, err := os.Stat(file)
	return err == nil
}

// opens has QEMU open a file for reading, without a lock, and says why it cannot; "" if it can.
func (p *Process) opens(ctx context.Context, driver, file string) (string, error) {
	err := p.qmp.Do(ctx, "blockdev-add", map[string]any{
		"driver": driver, "node-name": againNode, "filename": file, "read-only": true, "locking": "off",
	}, nil)
	var refused *qmp.Error
	if errors.As(err, &refused) {
		return strings.TrimSpace(refused.Desc), nil
	}
	if err != nil {
		return "", err
	}
	return "", p.qmp.Do(context.WithoutCancel(ctx), "blockdev-del", map[string]any{"node-name": againNode}, nil)
}
