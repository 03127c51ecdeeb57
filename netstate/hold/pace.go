package hold

import (
	"fmt"
	"time"

	"github.com/vishvananda/netlink"
)

// A pace keeps what is sent into a device below what its queue takes. The ring of a tunnel in user
// space throws away what is too much, and nobody is told: the device's statistics say so.
type pace struct {
	link    netlink.Link // as it was when sending began
	portion int          // frames; at most two of them wait
}

const (
	// paceStall is how long a device may take nothing, while frames wait, before no more are sent.
	paceStall = time.Second
	// paceLook is the most of it that passes between two looks: while this machine stands still, the device takes nothing
	// for no fault of its own.
	paceLook = 20 * time.Millisecond
)

func newPace(link netlink.Link) pace {
	queue := link.Attrs().TxQLen
	if queue <= 0 { // of a device without: as most have
		queue = 1000
	}
	return pace{link, max(queue/4, 1)}
}

// await returns when all but the last portion of what was sent has left the queue. What others
// send meanwhile counts as ours: that is what the rest of the queue is for.
func (p pace) await(sent int) error {
	if sent == 0 || sent%p.portion != 0 {
		return nil
	}
	var gone uint64
	var stall time.Duration
	for last := time.Now(); ; time.Sleep(pause) {
		now, err := p.gone()
		looked := time.Now()
		stall += min(looked.Sub(last), paceLook)
		last = looked
		switch {
		case err != nil:
			return err
		case now+uint64(p.portion) >= uint64(sent): //nolint:gosec // both are positive
			return nil
		case now > gone:
			gone, stall = now, 0
		case stall > paceStall:
			return fmt.Errorf("it has taken nothing for %v, and %d of %d packets wait", paceStall, uint64(sent)-now, sent) //nolint:gosec // positive
		}
	}
}

func (p pace) gone() (uint64, error) {
	s, err := statistics(p.link.Attrs().Name)
	if err != nil || p.link.Attrs().Statistics == nil {
		return 0, err
	}
	return left(s) - left(p.link.Attrs().Statistics), nil
}

// dropped counts what the device has thrown away meanwhile, where more was sent than a portion.
func (p pace) dropped(sent int) (int, error) {
	if sent <= p.portion || p.link.Attrs().Statistics == nil {
		return 0, nil
	}
	s, err := statistics(p.link.Attrs().Name)
	if err != nil {
		return 0, err
	}
	return min(int(s.TxDropped-p.link.Attrs().Statistics.TxDropped), sent), nil //nolint:gosec // few
}
