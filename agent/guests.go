package agent

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"

	"godwit/agent/asking"
	"godwit/agent/care"
	"godwit/agent/line"
	"godwit/internal/lists"
	"godwit/migration"
	"godwit/netstate/hold"
	"godwit/vm"
)

// Guest is a guest under care on this host. What is in Held is kept on the disk; once the guest
// is under care, who does not have it to itself asks held, and remember alone changes it.
type Guest struct {
	Held    care.Held
	Machine vm.Machine
	Taps    []*os.File // our duplicates of the taps' descriptors; nil where not ours

	line   line.Line
	asks   asking.Asking
	ending sync.Mutex // while the end of a lease takes addresses from it, or it is given its own again
	mu     sync.Mutex
	busy   string // who has it: the id of a migration, or a word for what else is done with it; see take
	booted string // what became of it when it booted anew; "": it did not, as far as is known
}

// take marks the guest as busy with migration id, or says who has it. A migration may take its own again; what else is
// done with a guest is done once at a time.
func (g *Guest) take(id string) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.busy != "" && (g.busy != id || !migration.ValidID(id)) {
		text := fmt.Sprintf("migration %s of it is under way; wait for it, or `godwit abort %s`", g.busy, g.busy)
		if !migration.ValidID(g.busy) {
			text = fmt.Sprintf("something else is being done with it (%s); try again when that is over, and see `godwit guest ls`", g.busy)
		}
		return &migration.Problem{Code: migration.CodeBusy, Text: fmt.Sprintf("guest %s: %s", g.Held.Description.Name, text)}
	}
	g.busy = id
	return nil
}

// takeHere is take for a guest that was found under care before: it may have left since, or been let go of, and what
// leads to it now is not to be touched. Whoever has taken it alone ends its care.
func (s *guests) takeHere(g *Guest, id string) error {
	if err := g.take(id); err != nil || s.has(g) {
		return err
	}
	g.drop(id)
	if _, err := s.find(g.name()); err != nil {
		return err
	}
	return &migration.Problem{Code: migration.CodeBusy, Text: fmt.Sprintf("guest %s: it has just left this host and come back, or was let go of and adopted again; try again", g.name())}
}

func (g *Guest) drop(id string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.busy == id {
		g.busy = ""
	}
}

func (g *Guest) migration() string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.busy
}

// held is what is remembered of the guest now, and does not change with it.
func (g *Guest) held() care.Held {
	g.mu.Lock()
	defer g.mu.Unlock()
	h := g.Held
	h.Addresses, h.Taps, h.ToDrop = slices.Clone(h.Addresses), slices.Clone(h.Taps), slices.Clone(h.ToDrop)
	return h
}

// remember changes what is remembered of a guest under care, of which others ask meanwhile.
func (g *Guest) remember(change func(*care.Held)) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.Held.Addresses = slices.Clone(g.Held.Addresses) // plans and reports have them, too, and who asked before: change may take some out in place
	change(&g.Held)
}

func (g *Guest) name() string { return g.Held.Description.Name }

// closeFiles lets go of descriptors and the channel; the guest runs on.
func (g *Guest) closeFiles() {
	if c := g.channel(); c != nil {
		c.Close() // and stays: who asks it now is told that it is closed
	}
	for _, t := range g.Taps {
		if t != nil {
			t.Close()
		}
	}
	g.Taps = nil
	if g.Machine != nil {
		g.Machine.Close()
	}
}

// guests is the set of guests under care.
type guests struct {
	saving sync.Mutex // of one that is written down, before mu: what is written last is the newest
	mu     sync.Mutex
	dir    string
	byName map[string]*Guest
	coming map[*Guest]bool // being started, received or waited for, or let go: not under care, but named and numbered
	unread map[string]error
	blind  error // why none of those that an earlier agent had is known; nil: they are

	unsaved map[string]*Guest // whose last change is not on the disk; under saving
}

func (s *guests) find(name string) (*Guest, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if g, ok := s.byName[name]; ok {
		return g, nil
	}
	if err := s.isReadable(name); err != nil {
		return nil, err
	}
	known := slices.Sorted(maps.Keys(s.byName))
	return nil, &migration.Problem{Code: migration.CodeUnknownGuest, Text: fmt.Sprintf(
		"guest %s: not under care on this host (it has: %s); `godwit history` says where one went that left", name, lists.OrNone(known))}
}

func (s *guests) all() []*Guest {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.SortedFunc(maps.Values(s.byName), func(a, b *Guest) int { return strings.Compare(a.name(), b.name()) })
}

// unknownNumbers is more guests than an agent that cannot read what it remembers may have.
const unknownNumbers = 1000

// any says whether it is so of a guest under care, or of one that is being started or received.
func (s *guests) any(is func(*Guest) bool) bool {
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
func (s *guests) free() int {
	first := 1
	if len(s.unread) > 0 || s.blind != nil {
		first = unknownNumbers
	}
	for n := first; ; n++ {
		has := func(g *Guest) bool { return g.Held.Number == n }
		if !s.any(has) && !tapped(n) {
			return n
		}
	}
}

// expect gives a guest that is being started or received a number, which nobody
// else gets until it is kept, or settled; nor does anybody its name, which names what is
// made for it. The error is of a name, or a MAC, that a guest here has.
func (s *guests) expect(g *Guest) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := cmp.Or(s.isFree(g.name()), s.areMACsFree(g.Held.Description)); err != nil {
		return err
	}
	g.Held.Number = s.free()
	s.reserve(g)
	return nil
}

// nameFree says that no guest here has a name, or comes with it.
func (s *guests) nameFree(name string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.isFree(name)
}

func (s *guests) isFree(name string) error {
	if s.any(func(g *Guest) bool { return g.name() == name }) {
		return &migration.Problem{Code: migration.CodeBusy, Text: fmt.Sprintf("guest %s: a guest of that name is on this host, or on its way here or away", name)}
	}
	return nil
}

// expectAgain is expect for a guest that has its number from an earlier agent.
func (s *guests) expectAgain(g *Guest) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reserve(g)
}

func (s *guests) reserve(g *Guest) {
	if s.coming == nil {
		s.coming = map[*Guest]bool{}
	}
	s.coming[g] = true
}

// settled ends expect; it may be called again.
func (s *guests) settled(g *Guest) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.coming, g)
}

// giveAddresses sets the addresses of an expected guest.
func (s *guests) giveAddresses(g *Guest, addrs []migration.Address) {
	s.mu.Lock()
	defer s.mu.Unlock()
	g.remember(func(h *care.Held) { h.Addresses = addrs })
}

// expected are the addresses of guests that are being started or received.
func (s *guests) expected() map[netip.Addr]string {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := map[netip.Addr]string{}
	for g := range s.coming {
		for _, addr := range g.held().Addresses {
			out[addr.Prefix.Addr()] = g.name()
		}
	}
	return out
}

// alive says whether the guest's QEMU still runs.
func (g *Guest) alive() bool {
	if g.Machine == nil {
		return false
	}
	select {
	case <-g.Machine.Done():
		return false
	default:
		return true
	}
}

// findTaps gets the descriptors of a guest's taps back from its QEMU.
func (a *Agent) findTaps(g *Guest) {
	g.Taps = nil
	for _, name := range g.Held.Taps {
		var tap *os.File
		if g.Machine != nil {
			var err error
			if tap, err = hold.Recover(g.Machine.PID(), name); err != nil {
				a.log.Warn("tap's descriptor not found again", "guest", g.name(), "tap", name, "error", err)
			}
		}
		g.Taps = append(g.Taps, tap)
	}
}

// activeTap is our descriptor of the active NIC's tap, nil where there is none.
func (g *Guest) activeTap() *os.File {
	if g.Held.Active < len(g.Taps) {
		return g.Taps[g.Held.Active]
	}
	return nil
}
