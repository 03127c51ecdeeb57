package qemu

import (
	"context"
	"fmt"
	"slices"
)

// DiskWrites is how often the guest has written to its disks since it runs here, and how many bytes, of the disks with
// such IDs.
func (p *Process) DiskWrites(ctx context.Context, disks []string) (times, bytes int64, err error) {
	var stats []struct {
		Device string `json:"device"`
		Node   string `json:"node-name"`
		Stats  struct {
			Times int64 `json:"wr_operations"`
			Bytes int64 `json:"wr_bytes"`
		} `json:"stats"`
	}
	if err := p.qmp.Do(ctx, "query-blockstats", nil, &stats); err != nil {
		return 0, 0, fmt.Errorf("look what the guest writes to its disks: %w", err)
	}
	for _, s := range stats {
		id := s.Node
		if s.Device != "" {
			id = s.Device
		}
		if slices.Contains(disks, id) {
			times, bytes = times+s.Stats.Times, bytes+s.Stats.Bytes
		}
	}
	return times, bytes, nil
}
