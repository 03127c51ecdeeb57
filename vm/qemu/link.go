package qemu

import (
	"context"
	"fmt"
	"strings"
)

// SetLink plugs the cable of the guest's NIC with that MAC in, or pulls it. The guest
// sees its carrier come or go, and a link that is pulled takes no packets. The state is
// part of the guest: it moves along.
func (p *Process) SetLink(ctx context.Context, mac string, up bool) error {
	cards, err := p.Cards(ctx)
	if err != nil {
		return fmt.Errorf("set link of NIC %s: %w", mac, err)
	}
	for _, c := range cards {
		if !strings.EqualFold(c.MAC, mac) {
			continue
		}
		if err := p.qmp.Do(ctx, "set_link", map[string]any{"name": c.Netdev, "up": up}, nil); err != nil {
			return fmt.Errorf("set link of NIC %s: %w", mac, err)
		}
		return nil
	}
	return fmt.Errorf("set link of NIC %s: its QEMU has none of that MAC (it has: %v)", mac, cards)
}
