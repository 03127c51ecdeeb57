package topo

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"

	"godwit/lab/wan"
	"godwit/netstate/netns"

	"github.com/vishvananda/netlink"
	"golang.org/x/sync/errgroup"
)

// link is a live uplink.
type link struct {
	emulator wan.Emulator
	mu       sync.Mutex
	now      wan.Link
	last     wan.Counters
	failed   error // why it did not answer when it was asked for last
}

// startLinks makes the devices of every uplink of every site.
func (t *Topo) startLinks(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	for i, site := range t.spec.Sites {
		for u, uplink := range site.Uplinks {
			group.Go(func() error {
				a := wan.End{Namespace: t.spec.namespace(routerNode(site.Name)), Device: upDevice(u)}
				b := wan.End{Namespace: t.spec.namespace(coreNode), Device: coreDevice(i, u)}
				emulator, err := wan.Start(ctx, a, b, uplink.Link, uint64(i)<<8|uint64(u))
				if err != nil {
					return fmt.Errorf("uplink %s of site %s: %w", uplink.Name, site.Name, err)
				}
				t.mu.Lock()
				t.links[site.Name+"/"+uplink.Name] = &link{emulator: emulator, now: uplink.Link}
				t.mu.Unlock()
				return nil
			})
		}
	}
	return group.Wait()
}

// SetLink changes the uplink of a site ("all" is each of them), from what it is now.
// Where it fails for one, the others may have changed. In a link, a is the site.
func (t *Topo) SetLink(site, uplink string, change func(*wan.Link)) error {
	found := false
	var errs []error
	for key, l := range t.links {
		if key != site+"/"+uplink && (uplink != "all" || !strings.HasPrefix(key, site+"/")) {
			continue
		}
		found = true
		l.mu.Lock()
		next := l.now
		change(&next)
		if err := l.emulator.Set(next); err != nil {
			errs = append(errs, fmt.Errorf("set uplink %s: %w", key, err))
		} else {
			l.now = next
		}
		l.mu.Unlock()
	}
	if !found {
		return fmt.Errorf("set uplink %s/%s: there is no such uplink", site, uplink)
	}
	return errors.Join(errs...)
}

// LinkCounters returns the counters of every uplink by "site/uplink". Of a link whose
// emulator does not answer, they are the last known; see DeadLinks.
func (t *Topo) LinkCounters() map[string]wan.Counters {
	counters := map[string]wan.Counters{}
	for key, l := range t.links {
		c, err := l.emulator.Counters()
		l.mu.Lock()
		if l.failed = err; err == nil {
			l.last = c
		}
		counters[key] = l.last
		l.mu.Unlock()
	}
	return counters
}

// DeadLinks says which uplinks' emulators did not answer when LinkCounters asked last: they
// carry nothing any more.
func (t *Topo) DeadLinks() error {
	var errs []error
	for key, l := range t.links {
		l.mu.Lock()
		if l.failed != nil {
			errs = append(errs, fmt.Errorf("uplink %s: its emulator does not answer: %w", key, l.failed))
		}
		l.mu.Unlock()
	}
	return errors.Join(errs...)
}

// Sent is what the host has sent by its uplinks, bytes with Ethernet's headers; 0 where that
// cannot be asked for, as when the host is gone.
func (h *Host) Sent() (sum int64) {
	netns.Do(h.Namespace, func() error { //nolint:errcheck // 0 then, which shows
		for _, u := range h.Uplinks {
			link, err := netlink.LinkByName(u.Device)
			if err != nil {
				return err
			}
			sum += int64(link.Attrs().Statistics.TxBytes) //nolint:gosec // a count
		}
		return nil
	})
	return sum
}
