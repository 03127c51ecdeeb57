// Package wan emulates wide-area links between network namespaces.
//
// A Link says what a link is; an Emulator makes two devices behave like it. Where
// the kernel has netem, the devices are a veth pair under netem; where not, they are
// two TUN devices and one process of ours that carries packets between them.
//
// Each direction of a link is, in the order a packet meets it:
//
//	cut → loss → queue (drop-tail, bytes) → transmitter (rate) → delay line (delay, jitter)
//
// Bytes and rates are of IP packets: no link-layer header is counted.
package wan

import (
	"fmt"
	"time"
)

// Link is what a link does in each direction. The zero value is a perfect wire.
type Link struct {
	Rate   int64         `json:"rate"`   // bit/s of IP packets; 0 is unlimited
	Delay  time.Duration `json:"delay"`  // one way, after the last bit is sent
	Jitter time.Duration `json:"jitter"` // the delay wanders within Delay ± Jitter; packets keep their order
	Loss   float64       `json:"loss"`   // probability of each packet to be lost, independent: 0…1
	Queue  int           `json:"queue"`  // bytes waiting for the transmitter; 0 is the default, see QueueBytes
	MTU    int           `json:"mtu"`    // bytes of an IP packet; 0 is 1500
	Cut    string        `json:"cut"`    // what carries nothing: "", "both", "ab" or "ba"
}

// Directions that Link.Cut names.
const (
	CutNone = ""
	CutBoth = "both"
	CutAB   = "ab"
	CutBA   = "ba"
)

const (
	defaultMTU = 1500
	minQueue   = 64 << 10
	maxQueue   = 1 << 30
	maxRate    = 100e9
	maxDelay   = time.Minute
)

// QueueBytes is the queue's length: what was asked for, else one bandwidth-delay
// product of the link's own round trip (Rate × 2·Delay), at least 64 KiB.
func (l Link) QueueBytes() int {
	if l.Queue > 0 {
		return l.Queue
	}
	product := float64(l.Rate) / 8 * 2 * l.Delay.Seconds()
	return int(min(max(product, minQueue), maxQueue))
}

// MTUBytes is the MTU with its default.
func (l Link) MTUBytes() int {
	if l.MTU == 0 {
		return defaultMTU
	}
	return l.MTU
}

// Check returns an error that names the first value that no link can have.
func (l Link) Check() error {
	switch {
	case l.Rate < 0 || float64(l.Rate) > maxRate:
		return fmt.Errorf("check link: rate %d bit/s is not within 0 and 100 Gbit/s", l.Rate)
	case l.Delay < 0 || l.Delay > maxDelay:
		return fmt.Errorf("check link: delay %v is not within 0 and %v", l.Delay, maxDelay)
	case l.Jitter < 0 || l.Jitter > l.Delay:
		return fmt.Errorf("check link: jitter %v is not within 0 and the delay %v", l.Jitter, l.Delay)
	case !(l.Loss >= 0 && l.Loss <= 1):
		return fmt.Errorf("check link: loss %v is not within 0 and 1", l.Loss)
	case l.Queue < 0 || l.Queue > maxQueue:
		return fmt.Errorf("check link: queue %d bytes is not within 0 and 1 GiB", l.Queue)
	case l.MTU != 0 && (l.MTU < 576 || l.MTU > 65535):
		return fmt.Errorf("check link: mtu %d is not within 576 and 65535", l.MTU)
	}
	switch l.Cut {
	case CutNone, CutBoth, CutAB, CutBA:
		return nil
	}
	return fmt.Errorf("check link: cut %q is none of both, ab, ba", l.Cut)
}

// Flow counts one direction since the link was made. Packets are those on the wire:
// a segment of a large send is one packet.
type Flow struct {
	Packets   uint64 `json:"packets"` // delivered
	Bytes     uint64 `json:"bytes"`   // delivered, IP bytes
	QueueDrop uint64 `json:"queue_drop"`
	LossDrop  uint64 `json:"loss_drop"`
	CutDrop   uint64 `json:"cut_drop"`
	// DeviceDrop is what the kernel dropped because the emulator did not keep up, or
	// refused to take: it should be 0, and is a fault of the lab if it is not.
	DeviceDrop uint64 `json:"device_drop"`
	Waiting    int    `json:"waiting"` // bytes in the queue now
}

// Drops is the number of packets that the link lost, for whatever reason.
func (f Flow) Drops() uint64 { return f.QueueDrop + f.LossDrop + f.CutDrop + f.DeviceDrop }

// Counters counts both directions.
type Counters struct {
	AB Flow `json:"ab"`
	BA Flow `json:"ba"`
	// Lost are the tunnels' datagrams among the drops. netem does not tell which packets
	// it drops: of such a link they are not known, and nothing is here.
	Lost []Lost `json:"lost,omitempty"`
}
