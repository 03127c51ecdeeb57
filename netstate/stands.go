package netstate

import (
	"fmt"
	"net"
	"slices"

	"golang.org/x/sys/unix"
)

// Stands says whether all of s is there, as after Set(s), but forwarding entries. Whoever loads a
// host's rules anew takes some away (`nft flush ruleset`, a firewall that is restarted), whoever
// configures its network anew other things; Set puts it back.
func Stands(s State) (bool, error) {
	mu.Lock()
	defer mu.Unlock()
	ok, err := stands(s)
	if ok && err == nil {
		var guests []string
		guests, err = lacking([]State{s})
		ok = len(guests) == 0
	}
	return ok, wrap(err, "look at network state of guest %s", s.Guest)
}

// Lacking names the guests of whom a route, a rule, a neighbour entry or a sysctl is missing: what
// nftables does not hold, and has no number that says whether it was changed (see Generation). It
// is cheap, and waits for nobody: what is just being changed may seem to be missing.
func Lacking(states []State) ([]string, error) {
	guests, err := lacking(states)
	return guests, wrap(err, "look at network state")
}

func lacking(states []State) ([]string, error) {
	k := newKernel()
	routes, err := k.ourRoutesAndRules()
	if err != nil {
		return nil, err
	}
	neighbours, err := k.ourNeighbours()
	if err != nil {
		return nil, err
	}
	here := map[string]bool{}
	for _, r := range append(routes, neighbours...) {
		here[identity(r)] = true
	}
	var guests []string
	for _, s := range states {
		if slices.ContainsFunc(wanted(s), func(r resource) bool { return k.lacks(here, r) }) {
			guests = append(guests, s.Guest)
		}
	}
	return guests, nil
}

// identity tells more than describe where the kernel keeps one entry of a kind.
func identity(r resource) string {
	if n, ok := r.(neighbour); ok {
		return describe(r) + " " + n.mac
	}
	return describe(r)
}

// lacks says whether r could be there and is not. What needs a device that has gone could not.
func (k *kernel) lacks(here map[string]bool, r resource) bool {
	var dev string
	switch r := r.(type) {
	case sysctl:
		_, _, same, err := r.change()
		return err == nil && !same
	case route:
		dev = r.dev
	case neighbour:
		dev = r.dev
	case proxy:
		dev = r.dev
	case policyRule:
		return !here[identity(r)]
	case linkLocalSpeaker:
		return r.missing(k)
	default:
		return false
	}
	if here[identity(r)] {
		return false
	}
	link, err := k.link(dev)
	return err == nil && link.Attrs().Flags&net.FlagUp != 0
}

func stands(s State) (bool, error) {
	b, err := readBook()
	if err != nil {
		return false, err
	}
	states, macs, err := b.states()
	if err != nil {
		return false, err
	}
	mac := macs[s.Guest]
	own, err := newKernel().answered(s, states)
	if err != nil {
		return false, err
	}
	if !slices.Equal(b.chains[chainAbout+s.Guest], notes(s, mac)) ||
		!slices.Equal(b.chains[chainIn+s.Guest], comments(ingress(s, mac))) ||
		!slices.Equal(b.chains[chainOut+s.Guest], comments(egress(s))) ||
		!slices.Equal(b.chains[chainUp+s.Guest], comments(input(s, own))) {
		return false, nil
	}
	leftAlone, err := readComments(unix.NFPROTO_INET, "")
	if err != nil {
		return false, err
	}
	fw, err := newKernel().firewall()
	if err != nil {
		return false, fmt.Errorf("read the firewall: %w", err)
	}
	asked, err := askingRules()
	if err != nil {
		return false, err
	}
	for _, r := range wanted(s) {
		switch r := r.(type) {
		case asking:
			if _, there := asked[r]; !there && !r.needless() {
				return false, nil
			}
		case untracked:
			if !r.asNow(leftAlone.chains[r.chain()]) {
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
