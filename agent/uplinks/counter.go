package uplinks

import (
	"maps"
	"net"
	"net/netip"
	"slices"

	"godwit/agent/config"
	"godwit/netstate/meter"
)

// counter counts what leaves by the device of an uplink, and by the next of its name, where that is made anew: as by
// who dials in, or restarts the host's network.
type counter struct {
	uplink  config.Uplink
	own     []netip.Addr        // of all uplinks by this device
	meter   *meter.Meter        // nil: no device of its name could be counted on, or there is none
	tried   int                 // the index of the last device of its name that was to be, 0 of none
	earlier map[meter.Key]int64 // bytes by devices before
	unable  string              // why what leaves by the device there is now is not counted; "": it is, or there is none
}

const (
	untried     = -1
	mostEarlier = 1 << 14 // flows of devices before that are kept beside those of the last
)

// openMeter is what a device is counted by.
var openMeter = meter.OpenRecent

// follow counts on the device that there is now. Each that cannot be counted on is tried once, and told of.
func (c *counter) follow(warn func(msg string, args ...any)) {
	if c.meter != nil && c.meter.Counts() {
		return
	}
	first, index := c.tried == untried, 0
	if device, err := net.InterfaceByName(c.uplink.Device); err == nil {
		index = device.Index
	}
	if c.meter == nil && index == c.tried {
		return
	}
	c.keep(warn)
	c.tried, c.unable = index, ""
	opened, err := openMeter(c.uplink.Device)
	if err != nil {
		warn("wire bytes are not counted", "uplink", c.uplink.Name, "error", err)
		if index != 0 { // nothing leaves by a device that there is not
			c.unable = err.Error()
		}
		return
	}
	if c.meter = opened; !first {
		warn("wire bytes are counted again", "uplink", c.uplink.Name, "cause", "its device is there now, or another than before; what left by it until now is not counted")
	}
}

// keep ends the meter of a device that has gone, and has what it counted for this host count on, which guests' flows do
// not. Of more than can be, tunnels are forgotten that the last device saw nothing of.
func (c *counter) keep(warn func(msg string, args ...any)) {
	if c.meter == nil {
		return
	}
	last, err := c.meter.Read()
	if err != nil {
		warn("read meter", "uplink", c.uplink.Name, "error", err, "consequence", "what left by a device that has gone is not counted")
	}
	c.earlier = c.with(last)
	maps.DeleteFunc(c.earlier, func(k meter.Key, _ int64) bool { return !slices.Contains(c.own, k.Src) })
	if len(c.earlier) > mostEarlier {
		maps.DeleteFunc(c.earlier, func(k meter.Key, _ int64) bool { return k.Proto == protoUDP && last[k].Frames == 0 })
	}
	c.close()
}

func (c *counter) close() {
	if c.meter != nil {
		c.meter.Close() //nolint:errcheck // it counts nothing any more
		c.meter = nil
	}
}

// sent is what has left so far, bytes.
func (c *counter) sent() (map[meter.Key]int64, error) {
	if c.meter == nil {
		return c.earlier, nil
	}
	counts, err := c.meter.Read()
	if err != nil {
		return nil, err
	}
	return c.with(counts), nil
}

// with is what has left by devices before, and by one that has counted that.
func (c *counter) with(counts map[meter.Key]meter.Count) map[meter.Key]int64 {
	out := make(map[meter.Key]int64, len(c.earlier)+len(counts))
	maps.Copy(out, c.earlier)
	for key, count := range counts {
		if key.Out {
			out[key] += int64(count.Bytes) //nolint:gosec // some exabytes
		}
	}
	return out
}
