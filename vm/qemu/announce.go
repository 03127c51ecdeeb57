package qemu

import "context"

// Announce has the guest tell its LAN where it is now (announce-self of qapi/net.json). QEMU does so
// by itself at the end of a migration, five times from the guest's first instruction on, unless it is told not to
// (configure): each time costs an emulated guest 15 ms of the first 200, in which its clients wait.
func (p *Process) Announce(ctx context.Context) error {
	return p.qmp.Do(ctx, "announce-self", map[string]any{"initial": 50, "max": 550, "rounds": 3, "step": 100}, nil)
}
