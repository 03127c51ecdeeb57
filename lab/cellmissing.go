package lab

import (
	"encoding/json"

	"godwit/agent/record"
)

// In mode postcopy a cell is to have its fault while pages are missing. How many are is the source's word, which is
// up to 0.2 s old; a machine that is slow enough has brought the last of them before the phase begins.

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
