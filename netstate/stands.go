package netstate

import (
	"fmt"
	"slices"
)

// Stands says whether all of s that nftables holds is there, as after Set(s): its own tables,
// and its openings of the host's firewall. Whoever loads a host's rules anew takes some away
// (`nft flush ruleset`, a firewall that is restarted); Set puts it back.
func Stands(s State) (bool, error) {
	mu.Lock()
	defer mu.Unlock()
	ok, err := stands(s)
	return ok, wrap(err, "look at network state of guest %s", s.Guest)
}

func stands(s State) (bool, error) {
	b, err := readBook()
	if err != nil {
		return false, err
	}
	_, macs, err := b.states()
	if err != nil {
		return false, err
	}
	mac := macs[s.Guest]
	if !slices.Equal(b.chains[chainAbout+s.Guest], notes(s, mac)) ||
		!slices.Equal(b.chains[chainIn+s.Guest], comments(ingress(s, mac))) ||
		!slices.Equal(b.chains[chainOut+s.Guest], comments(egress(s))) {
		return false, nil
	}
	leftAlone, err := untrackedChains()
	if err != nil {
		return false, err
	}
	fw, err := newKernel().firewall()
	if err != nil {
		return false, fmt.Errorf("read the firewall: %w", err)
	}
	for _, r := range wanted(s) {
		switch r := r.(type) {
		case untracked:
			if !slices.Contains(leftAlone, r) {
				return false, nil
			}
		case opening:
			if len(fw.lacking(r)) > 0 {
				return false, nil
			}
		}
	}
	return true, nil
}
