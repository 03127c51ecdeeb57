package lab

import (
	"context"
	"fmt"
	"time"

	"godwit/agent/api"
	"godwit/migration"
)

// guestInfo asks the agent that has the guest.
func (r *run) guestInfo(ctx context.Context, name string) (api.GuestInfo, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	host, err := r.w.agentOf(name).client.Host(ctx)
	if err != nil {
		return api.GuestInfo{}, err
	}
	for _, g := range host.Guests {
		if g.Name != name {
			continue
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.known == nil {
			r.known = map[string][]migration.Address{}
		}
		r.known[name] = g.Addresses
		return g, nil
	}
	return api.GuestInfo{}, fmt.Errorf("guest %s: not on %s", name, host.Host)
}

// whereIs are the addresses that the guest has by its agent; by what that told last, where nobody starts it again: its
// clients go on, too.
func (r *run) whereIs(ctx context.Context, name string) ([]migration.Address, error) {
	info, err := r.guestInfo(ctx, name)
	if err == nil {
		return info.Addresses, nil
	}
	r.mu.Lock()
	known := r.known[name]
	r.mu.Unlock()
	if len(known) == 0 || !r.w.agentOf(name).goneForGood() {
		return nil, err
	}
	return known, nil
}
