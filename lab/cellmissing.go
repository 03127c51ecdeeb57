package lab

import (
	"context"
	"encoding/json"
	"time"

	"godwit/agent/record"
	"godwit/migration"
)

// In mode postcopy a cell is to have its fault while pages are missing. How many are is the source's word, which is
// up to 0.2 s old.

// hearMissing keeps how many pages have to follow the guest, where e tells of that.
func (c *cellRun) hearMissing(e record.Event) {
	var p record.CopyProgress
	if e.Kind != "progress" || json.Unmarshal(e.Data, &p) != nil || p.What != record.CopyOfRest {
		return
	}
	left := p.Remaining >> 12
	c.mu.Lock()
	defer c.mu.Unlock()
	c.missing = &left
}

// noteMissing says how many there were when the fault came: without any the cell tries no more than one of mode auto.
func (c *cellRun) noteMissing() {
	c.mu.Lock()
	left := c.missing
	c.mu.Unlock()
	switch {
	case left == nil:
	case *left == 0:
		c.note("no page was missing any more")
	default:
		c.note("some %d pages were missing", *left)
	}
}

// holdMissing lets pages come so fast, bit/s, where the fault is to come in settle. A handover takes as long as the
// machine is busy, and by its end the last page would often be there. An agent that was killed goes on as planned.
func (c *cellRun) holdMissing(ctx context.Context, bandwidth int64) {
	if c.mode != "postcopy" || c.cell.Phase != migration.Settle {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	if err := c.from.client.SetBandwidth(ctx, c.id, bandwidth); err != nil {
		c.log.Info("pages come as fast as before", "error", err)
	}
}
