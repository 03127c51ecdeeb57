package policy

import "time"

// Facts for a prediction.
type Facts struct {
	Touched   int64 // bytes of guest memory in use by the hypervisor process
	Memory    int64 // bytes of guest memory
	Disk      int64 // bytes of data on its disks
	Rate      int64 // bit/s of all paths together; 0: unknown
	RTT       time.Duration
	DirtyRate int64   // bytes per second; 0: unknown
	Ratio     float64 // bytes on the wire for a byte of touched memory
	Budget    time.Duration
	Tail      int64 // bytes of device state, as they are sent; 0: as QEMU writes it

	MostThrottle int // how far the guest may be throttled, percent

	Stopped bool // the guest stands still from the first byte of its memory on (stop-and-copy)
}

// Forecast is what a migration will cost.
type Forecast struct {
	Migration time.Duration
	Downtime  time.Duration
	WireBytes int64
	Throttled int // how far the guest will have to be, percent; 0: not at all
}

// assumedRate stands in where nothing is known of a link, bit/s.
const assumedRate = 1_000_000_000

// zeroMarker is what an untouched 4 KiB page costs on the wire, bytes.
const zeroMarker = 9

// setup is what check and prepare take beside round trips.
const setup = 1500 * time.Millisecond

// Predict computes the geometric series of pre-copy rounds (Clark 2005; He 2019,
// eq. 1): each round sends what the one before let the guest write.
func Predict(f Facts) Forecast {
	rate := float64(f.Rate)
	if rate == 0 {
		rate = assumedRate
	}
	bytesPerSecond := rate / 8 * 0.95
	ratio := f.Ratio
	if ratio == 0 {
		ratio = 1
	}
	if f.Stopped { // nothing is written meanwhile
		f.DirtyRate = 0
	}
	dirty := float64(f.DirtyRate) * ratio
	throttled := Throttling{Most: f.MostThrottle}.Foresee(f.DirtyRate, int64(bytesPerSecond))
	if throttled > 0 { // from when on each round is that share of the one before
		dirty = min(dirty, max(easeTarget*bytesPerSecond, dirty*float64(100-throttled)/100))
	}
	first := float64(f.Touched)*ratio + float64(f.Memory-min(f.Touched, f.Memory))/4096*zeroMarker
	share := min(dirty/bytesPerSecond, 0.95) // of a round that is sent again
	wire := first / (1 - share)
	wire += float64(f.Disk) // it goes once, as it is
	copying := time.Duration(wire / bytesPerSecond * float64(time.Second))
	last := Look{Remaining: int64(share * share * first), Goodput: int64(bytesPerSecond), Tail: f.Tail}
	downtime := min(last.Downtime(f.RTT), max(f.Budget, last.Downtime(f.RTT)/2))
	downtime = max(downtime, Least(f.RTT, f.Tail, last.Goodput)) // no budget makes the way shorter
	if f.Stopped {                                               // and no budget keeps it short
		last.Remaining = int64(first)
		downtime = last.Downtime(f.RTT)
	}
	return Forecast{
		Migration: setup + 8*f.RTT + copying,
		Downtime:  downtime,
		WireBytes: int64(wire) + last.tail(),
		Throttled: throttled,
	}
}
