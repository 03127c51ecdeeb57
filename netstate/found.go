package netstate

import (
	"errors"
	"fmt"
	"slices"
)

// An Inventory is everything of ours in this namespace, from the kernel alone.
type Inventory struct {
	States map[string]State // by guest
	Stray  []string         // marked as ours, but no guest's state asks for it
}

// Found reads the kernel; it changes nothing.
func Found() (Inventory, error) {
	mu.Lock()
	defer mu.Unlock()
	var inv Inventory
	b, err := readBook()
	if err == nil {
		inv.States, _, err = b.states()
	}
	if err != nil {
		return inv, fmt.Errorf("look for network state: %w", err)
	}
	stray, err := strays(newKernel(), resourcesOf(inv.States, possible))
	if err != nil {
		return inv, fmt.Errorf("look for network state: %w", err)
	}
	for _, r := range stray {
		inv.Stray = append(inv.Stray, describe(r))
	}
	return inv, nil
}

// strays lists marked entries that no state wants.
func strays(k *kernel, wanted []resource) ([]resource, error) {
	routes, err := k.ourRoutesAndRules()
	if err != nil {
		return nil, err
	}
	neighbours, err := k.ourNeighbours()
	if err != nil {
		return nil, err
	}
	left, err := untrackedChains()
	if err != nil {
		return nil, err
	}
	for _, u := range left {
		neighbours = append(neighbours, u)
	}
	asked, err := askingRules()
	if err != nil {
		return nil, err
	}
	for a := range asked {
		neighbours = append(neighbours, a)
	}
	fw, err := k.firewall()
	if err != nil {
		return nil, err
	}
	for _, r := range fw.openings() {
		neighbours = append(neighbours, r.opening)
	}
	speakers, err := k.speakers()
	if err != nil {
		return nil, err
	}
	neighbours = unique(append(neighbours, speakers...))
	known := map[string]bool{}
	for _, r := range wanted {
		known[describe(r)] = true
	}
	return slices.DeleteFunc(append(routes, neighbours...), func(r resource) bool {
		rule, ok := r.(policyRule)
		return known[describe(r)] || ok && known[describe(rule.now())]
	}), nil
}

// RemoveStray removes the marked entry that Found calls so, if it is still stray.
func RemoveStray(name string) error {
	mu.Lock()
	defer mu.Unlock()
	b, err := readBook()
	if err != nil {
		return err
	}
	states, _, err := b.states()
	if err != nil {
		return err
	}
	k := newKernel()
	stray, err := strays(k, resourcesOf(states, possible))
	if err != nil {
		return err
	}
	for _, r := range stray {
		if describe(r) == name {
			return r.remove(k)
		}
	}
	return nil
}

// describe names an entry by what identifies it in the kernel.
func describe(r resource) string {
	switch r := r.(type) {
	case route:
		return fmt.Sprintf("route %s dev %s table %d", r.dst, r.dev, r.table)
	case policyRule:
		return r.String()
	case neighbour:
		return fmt.Sprintf("neighbour %s dev %s", r.addr, r.dev)
	case proxy:
		return fmt.Sprintf("proxy %s dev %s", r.addr, r.dev)
	case untracked:
		return fmt.Sprintf("untracked %s", r.addr)
	case opening:
		return r.String()
	case linkLocalSpeaker:
		return "link-local address of " + r.bridge
	case forwarding:
		return fmt.Sprintf("forwarding %s dev %s", r.mac, r.tap)
	}
	return fmt.Sprint(r)
}

// CleanUp removes the state of all guests but those named, and whatever else
// carries our mark. removed says what it was, one line each.
func CleanUp(keep []string) (removed []string, err error) {
	inv, err := Found()
	if err != nil {
		return nil, err
	}
	for _, guest := range sorted(inv.States) {
		if slices.Contains(keep, guest) {
			continue
		}
		if err := Clear(guest); err != nil {
			return removed, err
		}
		removed = append(removed, "network state of guest "+guest)
	}
	mu.Lock()
	defer mu.Unlock()
	b, err := readBook()
	if err != nil {
		return removed, err
	}
	states, _, err := b.states()
	if err != nil {
		return removed, err
	}
	swept, err := removeStrays(resourcesOf(states, possible))
	removed = append(removed, swept...)
	var errs []error
	if len(states) == 0 && len(b.chains) > 0 {
		errs = append(errs, b.tear())
		removed = append(removed, "nftables table bridge "+tableName)
	}
	return removed, errors.Join(append(errs, err)...)
}

// RemoveStrays removes all that Found calls stray and none of needed asks for: somebody may have taken the notes of
// those away, and Set not have put them back yet. It says what that was.
func RemoveStrays(needed []State) (removed []string, err error) {
	mu.Lock()
	defer mu.Unlock()
	b, err := readBook()
	if err != nil {
		return nil, fmt.Errorf("look for network state: %w", err)
	}
	states, _, err := b.states()
	if err != nil {
		return nil, fmt.Errorf("look for network state: %w", err)
	}
	keep := resourcesOf(states, possible)
	for _, s := range needed {
		keep = append(keep, possible(s)...)
	}
	return removeStrays(keep)
}

func removeStrays(keep []resource) (removed []string, err error) {
	k := newKernel()
	stray, err := strays(k, keep)
	errs := []error{err}
	for _, r := range stray {
		if e := r.remove(k); e != nil {
			errs = append(errs, e)
			continue
		}
		removed = append(removed, describe(r))
	}
	return removed, errors.Join(errs...)
}
