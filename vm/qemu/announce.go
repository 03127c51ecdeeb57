package qemu

import "context"

// announceRounds is how often QEMU announces the NICs of a guest that has come, from its first instruction on: by default
// five times. A NIC with guestAnnounces has the guest do it as well, which costs an emulated one up to 15 ms of the first
// 200 each time, in which its clients wait. Not 0: then QEMU (seen with 10.0.2) frees a timer of virtio-net when such a
// guest has come, and takes it for one when the guest is reset: it crashes (virtio_net_post_load_device, virtio_net_reset
// of hw/net/virtio-net.c).
const announceRounds = 1

// guestAnnounces is the property of a virtio NIC that has the guest itself announce where it is: the device's feature
// VIRTIO_NET_F_GUEST_ANNOUNCE.
const guestAnnounces = "guest_announce"

// Announce has the guest, if its NICs do, and QEMU tell its LAN again where it is now (announce-self of qapi/net.json).
func (p *Process) Announce(ctx context.Context) error {
	return p.qmp.Do(ctx, "announce-self", map[string]any{"initial": 50, "max": 550, "rounds": 3, "step": 100}, nil)
}
