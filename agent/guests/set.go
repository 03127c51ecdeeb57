package guests

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"

	"godwit/agent/care"
	"godwit/internal/lists"
	"godwit/migration"
)

// Set are the guests of a host, a file in dir for each of those under care.
type Set struct {
	saving sync.Mutex // of one that is written down, before mu: what is written last is the newest
	mu     sync.Mutex
	dir    string
	byName map[string]*Guest
	coming map[*Guest]bool // being started, received or waited for, or let go: not under care, but named and numbered
	unread map[string]error
	blind  error // why none of those that an earlier agent had is known; nil: they are

	silent map[string]care.Held // that an earlier agent had under care, and whose QEMUs do not answer yet; by name

	unsaved map[string]*Guest // whose last change is not on the disk; under saving
	unkept  map[string]end    // of guests that were to be kept as ended, and are not yet; by name, under saving
}

// In are no guests yet, nor read what an earlier agent wrote down in dir: Remembered.
func In(dir string) *Set {
	return &Set{dir: dir, byName: map[string]*Guest{}, coming: map[*Guest]bool{}, silent: map[string]care.Held{}, unsaved: map[string]*Guest{}, unkept: map[string]end{}}
}

// Find is the guest of that name that is under care. The error says which there are, or why it may be here and is not.
func (s *Set) Find(name string) (*Guest, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if g, ok := s.byName[name]; ok {
		return g, nil
	}
	if err := s.isReadable(name); err != nil {
		return nil, err
	}
	if _, silent := s.silent[name]; silent {
		return nil, &migration.Problem{Code: migration.CodeHypervisor, Text: fmt.Sprintf(
			"guest %s: it may run on this host, and its QEMU has not answered since the agent was started; it is asked on, see the agent's log", name)}
	}
	known := slices.Sorted(maps.Keys(s.byName))
	return nil, &migration.Problem{Code: migration.CodeUnknownGuest, Text: fmt.Sprintf(
		"guest %s: not under care on this host (it has: %s); `godwit history` says where one went that left, `godwit guest ls` which have ended here", name, lists.OrNone(known))}
}

// All are those under care, by name.
func (s *Set) All() []*Guest {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.SortedFunc(maps.Values(s.byName), func(a, b *Guest) int { return strings.Compare(a.Name(), b.Name()) })
}

// unknownNumbers is more guests than an agent that cannot read what it remembers may have.
const unknownNumbers = 1000

// any says whether it is so of a guest under care, or of one that is being started or received.
func (s *Set) any(is func(*Guest) bool) bool {
	for _, g := range s.byName {
		if is(g) {
			return true
		}
	}
	for g := range s.coming {
		if is(g) {
			return true
		}
	}
	return false
}

// free is the smallest number that no guest here has, and by which no tap is called.
func (s *Set) free() int {
	first := 1
	if len(s.unread) > 0 || s.blind != nil {
		first = unknownNumbers
	}
	for n := first; ; n++ {
		has := func(g *Guest) bool { return g.held.Number == n }
		if !s.any(has) && !tapped(n) {
			return n
		}
	}
}

// Expect gives a guest that is being started or received a number, which nobody
// else gets until it is kept, or settled; nor does anybody its name, which names what is
// made for it. The error is of a name, or a MAC, that a guest here has.
func (s *Set) Expect(g *Guest) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := cmp.Or(s.isFree(g.Name()), s.areMACsFree(g.held.Description)); err != nil {
		return err
	}
	number := s.free()
	g.Remember(func(h *care.Held) { h.Number = number })
	s.coming[g] = true
	return nil
}

// NameFree says that no guest here has a name, or comes with it.
func (s *Set) NameFree(name string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.isFree(name)
}

func (s *Set) isFree(name string) error {
	if s.any(func(g *Guest) bool { return g.Name() == name }) {
		return &migration.Problem{Code: migration.CodeBusy, Text: fmt.Sprintf("guest %s: a guest of that name is on this host, or on its way here or away", name)}
	}
	return nil
}

// ExpectAgain is Expect for a guest that has its number from an earlier agent.
func (s *Set) ExpectAgain(g *Guest) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.coming[g] = true
}

// Settled ends Expect; it may be called again.
func (s *Set) Settled(g *Guest) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.coming, g)
}

// GiveAddresses sets the addresses of an expected guest.
func (s *Set) GiveAddresses(g *Guest, addrs []migration.Address) {
	s.mu.Lock()
	defer s.mu.Unlock()
	g.Remember(func(h *care.Held) { h.Addresses = addrs })
}

// Expected are the addresses of guests that are being started or received.
func (s *Set) Expected() map[netip.Addr]string {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := map[netip.Addr]string{}
	for g := range s.coming {
		for _, addr := range g.Held().Addresses {
			out[addr.Prefix.Addr()] = g.Name()
		}
	}
	return out
}

// Has says whether this very guest is under care.
func (s *Set) Has(g *Guest) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.byName[g.Name()] == g
}

// Expects says whether a guest of that name is being started, received or waited for.
func (s *Set) Expects(name string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for g := range s.coming {
		if g.Name() == name {
			return true
		}
	}
	return false
}

// TakeHere is Take for a guest that was found under care before: it may have left since, or been let go of, and what
// leads to it now is not to be touched. Whoever has taken it alone ends its care.
func (s *Set) TakeHere(g *Guest, id string) error {
	if err := g.Take(id); err != nil || s.Has(g) {
		return err
	}
	g.Drop(id)
	if _, err := s.Find(g.Name()); err != nil {
		return err
	}
	return &migration.Problem{Code: migration.CodeBusy, Text: fmt.Sprintf("guest %s: it has just left this host and come back, or was let go of and adopted again; try again", g.Name())}
}
