package qemu

import "context"

// announceRounds is how often QEMU has a guest that has come tell its LAN where it is, from its first
// instruction on: by default five times, of which each costs an emulated guest up to 15 ms of the first 200, in which
// its clients wait. Not 0: then QEMU (seen with 10.0.2) frees a timer of virtio-net when the guest has come, and takes it
// for one when the guest is reset: it crashes (virtio_net_post_load_device, virtio_net_reset of hw/net/virtio-net.c).
const announceRounds = 1

// Announce has the guest tell its LAN again where it is now (announce-self of qapi/net.json).
func (p *Process) Announce(ctx context.Context) error {
	return p.qmp.Do(ctx, "announce-self", map[string]any{"initial": 50, "max": 550, "rounds": 3, "step": 100}, nil)
}
