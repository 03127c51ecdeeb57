package lab

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"godwit/internal/clock"
	"godwit/lab/traffic"
)

// flows are the connections of a cell: two that can follow the guest, one that cannot.
var flows = []traffic.Flow{
	{Name: "ticks", Kind: traffic.Ticks, MPTCP: true},
	{Name: "download", Kind: traffic.Download, Rate: 4_000_000, MPTCP: true},
	{Name: "plain", Kind: traffic.Ticks, Every: 20 * time.Millisecond},
}

func (c *cellRun) startFlows(ctx context.Context) error {
	info, err := c.guestAddress(ctx)
	if err != nil {
		return err
	}
	for _, f := range flows {
		f.Target = info
		if err := c.clients[cellClient].Start(f); err != nil {
			return err
		}
		c.seen.Connections++
	}
	return nil
}

// guestAddress is the guest's current one.
func (c *cellRun) guestAddress(ctx context.Context) (netip.Addr, error) {
	info, err := c.from.client.Host(ctx)
	if err != nil {
		return netip.Addr{}, err
	}
	for _, g := range info.Guests {
		if g.Name == cellGuest && len(g.Addresses) > 0 {
			return g.Addresses[0].Prefix.Addr(), nil
		}
	}
	return netip.Addr{}, fmt.Errorf("guest %s runs on %s, and its agent does not have it under care", cellGuest, info.Host)
}

// flowing is how fresh a connection's last record must be for it to be well.
const flowing = 500 * time.Millisecond

// awaitFlows gives connections the time to be back: what was sent last during a cut is
// sent again, at the latest, as long after the cut as it lasted (RFC 6298, 5.5).
func (c *cellRun) awaitFlows(ctx context.Context) {
	limit := time.Now().Add(5 * time.Second)
	if end := c.zero.Add(time.Duration(2 * c.silent() * float64(time.Second))).Add(5 * time.Second); end.After(limit) {
		limit = end
	}
	for time.Now().Before(limit) && clock.Sleep(ctx, 100*time.Millisecond) {
		well := 0
		for _, f := range flows {
			if s, ok := c.sample(f.Name); ok && s.Time > time.Now().Add(-time.Second).UnixNano() && s.Alive == s.Connections && s.Waiting < int64(flowing) {
				well++
			}
		}
		if well == len(flows) {
			return
		}
	}
}

// silent is for how long after the fault a connection may have heard nothing, seconds: until something got through, and
// in post-copy until the last page was there, as a guest that waits for one stands still.
func (c *cellRun) silent() float64 {
	if c.mode == "postcopy" {
		return max(c.seen.ThroughS, c.seen.SettledS)
	}
	return c.seen.ThroughS
}

func (c *cellRun) stopFlows() error {
	var errs []error
	for _, f := range flows[:c.seen.Connections] {
		res, err := c.clients[cellClient].Stop(f.Name)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		for _, k := range res.Connections {
			if !k.Survived {
				c.seen.Lost = append(c.seen.Lost, f.Name+": "+orWords(k.Error, "it delivers no more"))
			}
		}
		if gap, ok := res.Gap(c.zero.UnixNano()-int64(time.Second), time.Now().UnixNano()); ok {
			c.seen.GapS = max(c.seen.GapS, gap.Seconds())
		}
	}
	return errors.Join(errs...)
}

func orWords(s, other string) string {
	if s == "" {
		return other
	}
	return s
}
