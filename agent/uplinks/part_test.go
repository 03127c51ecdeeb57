package uplinks

import (
	"testing"
	"time"
)

// TestPart: disks have what they take and a little more, at most half; memory has the rest.
func TestPart(t *testing.T) {
	const limit = 32 << 20
	var p Part
	now, carried := time.Unix(1000, 0), int64(1<<30)
	second := func(disks int64) int64 {
		now, carried = now.Add(time.Second), carried+disks
		return p.See(now, carried, limit)
	}
	if got := p.See(now, carried, limit); got != limit/2 {
		t.Errorf("at first QEMU has %d", got)
	}
	if got := p.See(now.Add(100*time.Millisecond), carried, limit); got != limit/2 {
		t.Errorf("within a second QEMU has %d", got)
	}
	if got := second(4 << 20); got != limit-6<<20 {
		t.Errorf("disks take 4 MiB/s: QEMU has %d", got)
	}
	for range 5 {
		second(0)
	}
	if got := second(0); got != limit-limit/leastDisk {
		t.Errorf("disks rest: QEMU has %d", got)
	}
	for range 5 { // they take what they may
		second(p.disks)
	}
	if got := second(p.disks); got != limit/2 {
		t.Errorf("disks take all they get: QEMU has %d", got)
	}
	if got := p.See(now, carried, 1); got != 1 {
		t.Errorf("of the least limit QEMU has %d", got)
	}
}
