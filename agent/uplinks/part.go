package uplinks

import "time"

// Where memory takes QEMU's own connection, and does not pass through us, it has a part of the migration's
// limit, and the disks have the rest. Both are set by what the disks take: they have what they need, at most
// half while memory is copied, and memory has what they leave.

// Part is how a limit is parted between memory that QEMU sends by itself, and disks. Its zero value leaves the disks half.
type Part struct {
	at      time.Time
	carried int64 // by the disks' streams until then, bytes
	disks   int64 // bytes per second for the disks
}

const (
	partEvery = time.Second // parts are set anew
	leastDisk = 16          // what disks have at least is this part of the limit
)

// See takes what the disks' streams have carried, and returns what QEMU has of a limit, bytes per second.
func (p *Part) See(now time.Time, carried, limit int64) int64 {
	half := limit / 2
	switch d := now.Sub(p.at); {
	case p.at.IsZero():
		p.at, p.carried, p.disks = now, carried, half
	case d >= partEvery:
		used := int64(float64(carried-p.carried) / d.Seconds())
		if used > p.disks*3/4 { // it may want more
			p.disks *= 2
		} else {
			p.disks = used * 3 / 2
		}
		p.at, p.carried = now, carried
	}
	p.disks = min(max(p.disks, limit/leastDisk), half)
	return max(1, limit-p.disks)
}
