package hold

import (
	"fmt"

	"github.com/vishvananda/netlink"

	"godwit/netstate/meter"
)

// A Queue knows how many frames wait in a tap. The kernel does not say; so it
// counts what went in since Watch, and takes off what the device's statistics say
// came out or was refused.
type Queue struct {
	device string
	in     *meter.Meter
	before uint64
}

// Watch starts to count on a tap whose queue is empty, such as one just made. Call
// Close after use.
func Watch(device string) (*Queue, error) {
	q := &Queue{device: device}
	out, _, err := q.outcome()
	if err != nil {
		return nil, err
	}
	q.before = out
	if q.in, err = meter.Open(device); err != nil {
		return nil, fmt.Errorf("watch queue of %s: %w", device, err)
	}
	return q, nil
}

// Frames returns how many frames wait now, and how many the full queue refused
// since the tap was made. Call it in the tap's network namespace.
func (q *Queue) Frames() (waiting, refused uint64, err error) {
	out, refused, err := q.outcome()
	if err != nil {
		return 0, 0, err
	}
	in, err := q.in.Sum(func(k meter.Key) bool { return k.Out || k == meter.Rest })
	if err != nil {
		return 0, 0, err
	}
	if gone := out - q.before; in.Frames > gone {
		waiting = in.Frames - gone
	}
	return waiting, refused, nil
}

// outcome counts frames that left the queue or never got in.
func (q *Queue) outcome() (out, refused uint64, err error) {
	link, err := netlink.LinkByName(q.device)
	if err != nil {
		return 0, 0, fmt.Errorf("read statistics of %s: %w", q.device, err)
	}
	s := link.Attrs().Statistics
	if s == nil {
		return 0, 0, fmt.Errorf("read statistics of %s: none", q.device)
	}
	return s.TxPackets + s.TxDropped, s.TxDropped, nil
}

// Close ends the watch.
func (q *Queue) Close() error { return q.in.Close() }
