package netstate

import (
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"

	"github.com/google/nftables"
)

// One change at a time: two guests may share a gateway's proxy entry.
var mu sync.Mutex

// Set makes the kernel equal to s for that guest; an empty s is Clear. A repeated
// call changes nothing. On failure what stood before still stands, and some of
// what is new may: Set again, or Clear.
//
// Where nothing but Active differs from before, all entries are flipped in the order that
// loses no packet, and nothing else is done. There it takes three or four milliseconds; back,
// nftables transactions wait for RCU grace periods, some 40 ms.
func Set(s State) error { return Replace(State{}, s) }

// Replace is Set of a guest whose state is known to be stood: what of that is not of s goes also where somebody took
// the notes of it away, as with Undo.
func Replace(stood, s State) error {
	if stood.Guest = s.Guest; s.Empty() {
		return Undo(stood)
	}
	if err := s.validate(); err != nil {
		return fmt.Errorf("set network state of guest %s: %w", s.Guest, err)
	}
	mu.Lock()
	defer mu.Unlock()
	return wrap(set(stood, s), "set network state of guest %s", s.Guest)
}

func set(stood, s State) error {
	b, err := readBook()
	if err != nil {
		return err
	}
	if err := b.recall(stood, s.Bridge); err != nil {
		return err
	}
	states, _, err := b.states()
	if err != nil {
		return err
	}
	return apply(b, s, b.trusts(states, s))
}

// recall notes again what is known to have stood, where somebody took the notes of it away, or a boot did. A bridge
// counts as pinned once a guest on it has notes (used). A boot unpinned it, so its MAC is pinned before the notes are
// written.
func (b book) recall(stood State, bridge string) error {
	about := chainAbout + stood.Guest
	if len(b.chains[about]) > 0 || stood.Empty() {
		return nil
	}
	states, _, err := b.states()
	if err == nil && !used(states, bridge) {
		_, err = newKernel().bridgeMAC(bridge, true)
	}
	if err != nil {
		return err
	}
	b.chains[about] = append(notes(stood, nil), noteUnfinished(stood, nil))
	p := newPage()
	p.write(about, nil, b.chains[about])
	return p.commit("notes")
}

// trusts says whether s is a flip of what is there for sure.
func (b book) trusts(states map[string]State, s State) bool {
	return sameButActive(states[s.Guest], s) && !slices.ContainsFunc(b.chains[chainAbout+s.Guest], isUnfinished)
}

// apply goes from what the book says to s, by the steps of a change. With trust it takes what the
// notes speak of as being there, and touches only what differs.
func apply(b book, s State, trust bool) error {
	c, err := b.change(s, trust)
	if err != nil {
		return err
	}
	for _, step := range c.steps() {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

// A change is on its way from one state of a guest to the next.
type change struct {
	book
	k             *kernel
	was, s        State
	bridge        net.HardwareAddr
	mine          []resource // to be made, or to stand already
	before, after []resource // of all guests
	own           []netip.Addr
	trust         bool
}

func (b book) change(s State, trust bool) (*change, error) {
	states, _, err := b.states()
	if err != nil {
		return nil, err
	}
	c := &change{book: b, k: newKernel(), was: states[s.Guest], s: s, mine: wanted(s), trust: trust}
	c.k.ours = trust
	if c.bridge, err = c.k.bridgeMAC(s.Bridge, !used(states, s.Bridge)); err != nil {
		return nil, err
	}
	c.before = resourcesOf(states, possible)
	if trust {
		c.before = resourcesOf(states, wanted)
		c.mine = slices.DeleteFunc(c.mine, func(r resource) bool { return slices.Contains(c.before, r) })
	} else if err := errors.Join(c.k.check(s), apart(c.before, c.mine)); err != nil {
		return nil, err
	}
	states[s.Guest] = s
	c.after = resourcesOf(states, wanted)
	c.own, err = c.k.answered(s, states)
	return c, err
}

// steps are: notes, then what is new, then the rules in one transaction, then what is no longer wanted. The
// process may end after any: what is there is in the notes until it is gone, and with trust in what is possible.
func (c *change) steps() []func() error {
	drop := func() error { return c.drop(c.k, c.before, c.after) }
	final := notes(c.s, c.bridge)
	if c.trust {
		return []func() error{c.make, func() error { return c.commitRules(final) }, drop}
	}
	return []func() error{c.noteIntent, c.make, func() error {
		if len(unwanted(c.before, c.after)) == 0 {
			return c.commitRules(final)
		}
		return c.commitRules(c.unfinished())
	}, drop, func() error { return c.commitNotes(final) }}
}

// make makes what is new.
func (c *change) make() error {
	for _, r := range c.mine {
		if err := r.ensure(c.k); err != nil {
			return err
		}
	}
	return c.tellApart(c.mine)
}

// noteIntent writes down what is about to be made, beside what was, and which
// sysctls will change; nothing if the book says so already.
func (c *change) noteIntent() error {
	old, about := c.remembered(), chainAbout+c.s.Guest
	changes, err := c.k.noteBefore(old, c.mine)
	if err != nil {
		return err
	}
	if !changes && contains(c.before, c.mine) {
		return nil
	}
	union := c.unfinished()
	p := newPage()
	p.write(chainRemember, c.chains[chainRemember], remember(old))
	p.write(about, c.chains[about], union)
	if err := p.commit("notes"); err != nil {
		return err
	}
	c.chains[about], c.chains[chainRemember] = union, remember(old)
	return nil
}

// unfinished are the notes of what was and of what is to be, until all of that is there, and nothing else.
func (c *change) unfinished() []string {
	lines := append(slices.Clone(c.chains[chainAbout+c.s.Guest]), notes(c.s, c.bridge)...)
	return unique(append(lines, noteUnfinished(c.s, c.bridge)))
}

// commitRules commits the rules of the bridge together with notes.
func (c *change) commitRules(about []string) error {
	guest, in, out, up := c.s.Guest, ingress(c.s, c.bridge), egress(c.s), input(c.s, c.own)
	same := func(chain string, rules []bridgeRule) bool {
		return slices.Equal(c.chains[chain+guest], comments(rules))
	}
	if same(chainIn, in) && same(chainOut, out) && same(chainUp, up) {
		return c.commitNotes(about)
	}
	p := newPage()
	p.counters(counters(c.s))
	if notesFlows(in, c.chains[chainIn+guest]) || notesFlows(out, c.chains[chainOut+guest]) {
		p.sets(guest)
	}
	p.base(chainIn+guest, nftables.ChainHookPrerouting, c.chains[chainIn+guest], in)
	p.base(chainOut+guest, nftables.ChainHookPostrouting, c.chains[chainOut+guest], out)
	p.base(chainUp+guest, nftables.ChainHookInput, c.chains[chainUp+guest], up)
	p.write(chainAbout+guest, c.chains[chainAbout+guest], about)
	p.uncount(slices.DeleteFunc(counters(c.was), func(name string) bool { return slices.Contains(counters(c.s), name) }))
	if err := p.commit("rules"); err != nil {
		return err
	}
	c.chains[chainAbout+guest] = about
	return nil
}

// commitNotes commits notes where they say something else.
func (c *change) commitNotes(about []string) error {
	chain := chainAbout + c.s.Guest
	if slices.Equal(c.chains[chain], about) {
		return nil
	}
	p := newPage()
	p.write(chain, c.chains[chain], about)
	if err := p.commit("notes"); err != nil {
		return err
	}
	c.chains[chain] = about
	return nil
}

// notesFlows says whether some of rules note flows and are not there yet.
func notesFlows(rules []bridgeRule, now []string) bool {
	return slices.ContainsFunc(rules, func(r bridgeRule) bool {
		return strings.HasPrefix(r.comment, flowsWord+" ") && !slices.Contains(now, r.comment)
	})
}

// drop removes what was there before and is wanted no more, last made first, and
// puts sysctls back that nobody needs.
func (b book) drop(k *kernel, before, after []resource) error {
	var errs []error
	old := b.remembered()
	was := former{old: old, kept: maps.Clone(old), theirs: othersForward6(old)}
	for _, r := range slices.Backward(unwanted(before, after)) {
		errs = append(errs, r.remove(k), was.undo(r, after))
	}
	if len(was.kept) != len(old) {
		p := newPage()
		p.write(chainRemember, b.chains[chainRemember], remember(was.kept))
		errs = append(errs, p.commit("notes"))
	}
	return errors.Join(errs...)
}

// unwanted is what of before is to go.
func unwanted(before, after []resource) []resource {
	return slices.DeleteFunc(slices.Clone(before), func(r resource) bool { return slices.Contains(after, r) || replaced(r, after) })
}

// Clear removes everything of the guest, and the table with the last guest. What
// was not there is no error. On failure call it again.
func Clear(guest string) error {
	mu.Lock()
	defer mu.Unlock()
	return wrap(clearAll(State{Guest: guest}), "clear network state of guest %s", guest)
}

// Undo is Clear of a guest whose state is known to be s: it removes that also where somebody took
// the notes of it away, as `nft flush ruleset` does. What sysctls were before went with them.
func Undo(s State) error {
	mu.Lock()
	defer mu.Unlock()
	return wrap(clearAll(s), "clear network state of guest %s", s.Guest)
}

func clearAll(stood State) error {
	guest := stood.Guest
	b, err := readBook()
	if err != nil || len(b.chains) == 0 && stood.Empty() {
		return err
	}
	states, _, err := b.states()
	if err != nil {
		return err
	}
	s, ok := states[guest]
	if !ok {
		if stood.Empty() {
			return nil
		}
		s, states[guest] = stood, stood
	}
	p := newPage() // the rules first: no frame may go up to a host that has no route
	p.base(chainIn+guest, nftables.ChainHookPrerouting, b.chains[chainIn+guest], nil)
	p.base(chainOut+guest, nftables.ChainHookPostrouting, b.chains[chainOut+guest], nil)
	if err := p.commit("rules"); err != nil {
		return err
	}
	before := resourcesOf(states, possible)
	delete(states, guest)
	if err := b.drop(newKernel(), before, resourcesOf(states, wanted)); err != nil {
		return err
	}
	p = newPage()
	if len(states) == 0 {
		p.tear()
	} else {
		p.remove(guest, counters(s))
	}
	return p.commit("removal")
}

func resourcesOf(states map[string]State, of func(State) []resource) []resource {
	var all []resource
	for _, guest := range sorted(states) {
		all = append(all, of(states[guest])...)
	}
	return unique(all)
}

func contains(all, some []resource) bool {
	for _, r := range some {
		if !slices.Contains(all, r) {
			return false
		}
	}
	return true
}

// replaced says that another resource took the place of r in the kernel, which knows
// them by less than we do: there is nothing to delete, or what is wanted would go.
func replaced(r resource, after []resource) bool {
	return slices.ContainsFunc(after, func(o resource) bool {
		switch gone := r.(type) {
		case route:
			n, ok := o.(route)
			return ok && n.dst == gone.dst && n.table == gone.table
		case neighbour:
			n, ok := o.(neighbour)
			return ok && n.dev == gone.dev && n.addr == gone.addr
		case proxy:
			n, ok := o.(proxy)
			return ok && n.dev == gone.dev && n.addr == gone.addr
		}
		return false
	})
}

func needed(after []resource, path string) bool {
	return slices.ContainsFunc(after, func(r resource) bool {
		c, ok := r.(sysctl)
		return ok && c.path == path
	})
}

func remember(old map[string]string) []string {
	var lines []string
	for _, path := range sorted(old) {
		lines = append(lines, words("sysctl", path, old[path]))
	}
	return lines
}

// tear puts every remembered sysctl back and takes the table out.
func (b book) tear() error {
	var errs []error
	old := b.remembered()
	theirs := othersForward6(old)
	for path, value := range old {
		if strings.HasPrefix(path, lastingWord) {
			errs = append(errs, putBack(path, value))
		} else if path != toCome6 && (!theirs || !ofForwarding6(path)) {
			errs = append(errs, restore(path, value))
		}
	}
	p := newPage()
	p.tear()
	return errors.Join(append(errs, p.commit("removal"))...)
}
