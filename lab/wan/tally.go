package wan

import "github.com/vishvananda/netlink"

// readings are the counters of one end's disciplines since they were made.
type readings struct {
	packets, bytes, drops uint64
	held                  int // packets, in the queue and on their way
	waiting               int // bytes of them
}

func read(list []netlink.Qdisc) (r readings) {
	for _, q := range list {
		stats := q.Attrs().Statistics
		if stats == nil || stats.Basic == nil || stats.Queue == nil {
			continue
		}
		switch q.Type() {
		case "tbf":
			const ethernet = 14
			r.packets = uint64(stats.Basic.Packets)
			r.bytes = stats.Basic.Bytes - min(stats.Basic.Bytes, ethernet*r.packets)
			r.held, r.waiting = int(stats.Queue.Qlen), int(stats.Queue.Backlog)
		case "netem":
			r.drops = uint64(stats.Queue.Drops)
		}
	}
	return r
}

// A tally adds up the readings of one direction. netem has one counter for all it drops:
// what it grew by goes where the settings of that time say that packets are lost.
type tally struct {
	sum  Flow
	seen readings
}

func (t *tally) add(now readings, link Link, carries bool) {
	t.sum.Packets += now.packets - t.seen.packets
	t.sum.Bytes += now.bytes - t.seen.bytes
	t.sum.Waiting = now.waiting
	drops := now.drops - t.seen.drops
	switch {
	case !carries:
		t.sum.CutDrop += drops
	case link.Loss > 0:
		t.sum.LossDrop += drops
	default:
		t.sum.QueueDrop += drops
	}
	t.seen = now
}

// emptied is told that the disciplines go, with all that they held, and new ones come.
func (t *tally) emptied() {
	t.sum.CutDrop += uint64(t.seen.held)
	t.sum.Waiting, t.seen = 0, readings{}
}
