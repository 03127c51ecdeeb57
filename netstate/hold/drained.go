// Package hold keeps the packets for a guest that is not running, and lets none
// of them be lost.
//
// The kernel queues for a paused guest in its tap, because a paused QEMU does not read it, but for one frame, which is
// lost ([Mark] is that one); a long queue at the destination holds what arrives until the guest wakes. At the source
// the opposite is wanted: at the stop, QEMU throws away what it had read, so before it nothing may be arriving (the
// flip of package netstate) and the tap's queue must be empty ([Drained]). What is left in a queue that no QEMU will
// read any more is read out ([ReadLeft]) and sent on to wherever the guest runs ([Resend]).
package hold

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// pause is how often a queue that is not empty is looked at.
const pause = 200 * time.Microsecond

// Drained returns when the tap's queue has been empty for quiet, without reading
// it: QEMU empties it. It gives up after limit, or when ctx ends, within quiet; a
// guest that takes no packets (its NIC is down, its ring full) never drains, so
// ask for the active NIC's tap only.
func Drained(ctx context.Context, tap *os.File, quiet, limit time.Duration) error {
	end := time.Now().Add(limit)
	for {
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("wait until %s is drained: %w", tap.Name(), err)
		}
		waits, err := waiting(tap, quiet)
		if err != nil {
			return fmt.Errorf("wait until %s is drained: %w", tap.Name(), err)
		}
		if !waits {
			return nil
		}
		if time.Now().After(end) {
			return fmt.Errorf("wait until %s is drained: frames still wait after %s", tap.Name(), limit)
		}
		time.Sleep(pause)
	}
}

// waiting says whether a frame waits, or comes within the time given.
func waiting(tap *os.File, within time.Duration) (bool, error) {
	raw, err := tap.SyscallConn()
	if err != nil {
		return false, err
	}
	var n int
	cerr := raw.Control(func(fd uintptr) {
		until := time.Now().Add(within)
		for {
			ts := unix.NsecToTimespec(max(0, time.Until(until)).Nanoseconds())
			n, err = unix.Ppoll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, &ts, nil)
			if !errors.Is(err, unix.EINTR) {
				return
			}
		}
	})
	if cerr != nil {
		err = cerr
	}
	return n > 0, err
}
