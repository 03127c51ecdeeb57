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
	spoken uint64 // frames of the guest, before
}

// Watch starts to count on a tap whose queue is empty, such as one just made. Call
// Close after use.
func Watch(device string) (*Queue, error) {
	q := &Queue{device: device}
	s, err := q.statistics()
	if err != nil {
		return nil, err
	}
	q.before, q.spoken = left(s), s.RxPackets
	if q.in, err = meter.Open(device); err != nil {
		return nil, fmt.Errorf("watch queue of %s: %w", device, err)
	}
	return q, nil
}

// Frames returns how many frames wait now, and how many the full queue refused
// since the tap was made. Call it in the tap's network namespace.
func (q *Queue) Frames() (waiting, refused uint64, err error) {
	s, err := q.statistics()
	if err != nil {
		return 0, 0, err
	}
	in, err := q.in.Sum(func(k meter.Key) bool { return k.Out || k == meter.Rest })
	if err != nil {
		return 0, 0, err
	}
	if gone := left(s) - q.before; in.Frames > gone {
		waiting = in.Frames - gone
	}
	return waiting, s.TxDropped, nil
}

// Spoken returns how many frames the guest has sent by the tap since Watch. Call it as Frames.
func (q *Queue) Spoken() (uint64, error) {
	s, err := q.statistics()
	if err != nil {
		return 0, err
	}
	return s.RxPackets - q.spoken, nil
}

// left counts frames that left the queue or never got in.
func left(s *netlink.LinkStatistics) uint64 { return s.TxPackets + s.TxDropped }

func (q *Queue) statistics() (*netlink.LinkStatistics, error) { return statistics(q.device) }

func statistics(device string) (*netlink.LinkStatistics, error) {
	link, err := netlink.LinkByName(device)
	if err != nil {
		return nil, fmt.Errorf("read statistics of %s: %w", device, err)
	}
	s := link.Attrs().Statistics
	if s == nil {
		return nil, fmt.Errorf("read statistics of %s: none", device)
	}
	return s, nil
}

// Close ends the watch.
func (q *Queue) Close() error { return q.in.Close() }
