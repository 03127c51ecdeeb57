package hold

import (
	"fmt"
	"net"

	"golang.org/x/sys/unix"
)

// experimental is an EtherType for local use (IEEE 802, §9.2.4), which no guest knows.
const experimental = 0x88b5

// Mark puts a frame into the tap's queue that means nothing and that Resend skips, behind
// all that is there, past what a bridge would drop. When QEMU has read it, nothing from
// before it waits in QEMU any more; one whose guest does not run reads nothing after it.
func Mark(device string) error {
	ifi, err := net.InterfaceByName(device)
	if err != nil {
		return fmt.Errorf("mark the queue of %s: %w", device, err)
	}
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("mark the queue of %s: %w", device, err)
	}
	defer closeLater(fd)
	frame := make([]byte, 60)
	copy(frame, []byte{0x02, 0x67, 0, 0, 0, 1, 0x02, 0x67, 0, 0, 0, 2, experimental >> 8, experimental & 0xff})
	if err := unix.Sendto(fd, frame, 0, &unix.SockaddrLinklayer{Ifindex: ifi.Index}); err != nil {
		return fmt.Errorf("mark the queue of %s: %w", device, err)
	}
	return nil
}
