package policy

import (
	"math"
	"time"
)

// DiskFacts is what is known of a guest's disks, all together, before they are copied.
type DiskFacts struct {
	Bytes  int64   // that they hold
	Packed int64   // what those take on their way
	Writes float64 // times per second that the guest writes to them; where nobody knows, anywhere in what they hold
	Size   float64 // bytes of each of those
	Loses  Loses   // what their way does, and its round trip
}

// How QEMU's mirror copies (block/mirror.c): so many requests are under way, and of memory for them so much; what is
// written goes again in whole chunks (vm/qemu has it so), of which neighbours make one request.
const (
	mirrorRequests = 16
	mirrorBuffer   = 10 << 20
	mirrorChunk    = 16 << 10
	// seedingTrips is what a disk's way takes before the first byte, in round trips: it is opened, and the disk granted.
	seedingTrips = 12
)

// Seeded is what copying disks is foreseen to take.
type Seeded struct {
	Took  time.Duration
	Bytes int64 // as they are sent
	Waits bool  // the guest's writes will have to wait for the copy
}

// Seeding foresees how disks are copied by paths that carry so many bytes per second: all that they hold once, by large
// requests, and then what was written meanwhile, over and over, by requests as small as those writes were apart. The
// copy of a disk has been made when for once nothing of it is under way; where the guest's writes leave no such moment,
// they are made to wait (Seeding.See).
func (d DiskFacts) Seeding(carried float64) (out Seeded) {
	if d.Bytes <= 0 {
		return Seeded{}
	}
	all := float64(d.Bytes) / mirrorChunk                    // chunks
	chunk := max(1, float64(d.Packed)*framing/all)           // bytes of one, as it is sent
	rtt := d.Loses.Arrives(mirrorRequests * chunk).Seconds() // what is on its way arrives in its order
	writes := d.Writes * max(1, d.Size/mirrorChunk)          // chunks per second
	took := max(all*chunk/carried, float64(d.Bytes)/mirrorBuffer*rtt)
	sent := all
	dirty := all * -math.Expm1(-writes*took/(2*all)) // what was not copied yet when it was written goes once
	again := func(dirty float64) float64 {
		return max(dirty*(1-dirty/all)/mirrorRequests*rtt, dirty*chunk/carried)
	}
	catch := seedCatch.Seconds()
	for dirty >= 1 && !out.Waits {
		round := again(dirty)
		took, sent = took+round, sent+dirty
		next := all * -math.Expm1(-writes*round/all)
		if next > 0.9*dirty { // it comes no nearer, which shows after a while
			took, sent, out.Waits = took+catch, sent+catch*dirty/round, true
		}
		dirty = next
	}
	if writes*rtt >= 1 && !out.Waits { // there is always something under way
		took, out.Waits = took+catch, true
	}
	if out.Waits {
		took, sent = took+again(dirty), sent+dirty
	}
	out.Took = seedingTrips*d.Loses.RTT + startup(sent*chunk, carried, d.Loses.RTT) + seconds(took)
	out.Bytes = int64(sent * chunk)
	return out
}
