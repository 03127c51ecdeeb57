// Package detour keeps a host's detours: the tunnels by which packets of guests that moved find them, and
// what each of them leads. It holds them in memory and on the disk (detours.json), computes what all
// detours of one guest ask of the kernel together, as one netstate.State, and has the kernel follow each
// change. Leases end by the wall clock, whose steps it notices and moves their ends along by.
//
// It asks nobody: when a detour is made, flipped, leased or ended is the agent's to say, and
// whether a tunnel stands, package tunnel's.
package detour

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"slices"
	"sync"
	"time"

	"godwit/agent/config"
	"godwit/agent/statefile"
	"godwit/internal/clock"
	"godwit/netstate"
	"godwit/netstate/tunnel"
)

// Detour is a tunnel, and the addresses of one guest that take it. At an address's
// home it holds Away entries, where the guest lives Visiting ones. What a guest's
// detours ask of the kernel together is its netstate.State.
type Detour struct {
	ID       string              `json:"id"` // of the migration that made it, with the peer's host
	Guest    string              `json:"guest"`
	Peer     string              `json:"peer"` // host at the other end
	Tunnel   tunnel.Config       `json:"tunnel"`
	Taps     []string            `json:"taps,omitempty"` // the guest's, while it is here
	Away     []netstate.Away     `json:"away,omitempty"`
	Visiting []netstate.Visiting `json:"visiting,omitempty"`
	// OffLink is the NIC with which the guest came here from another link; nil: from this one.
	OffLink *OffLink `json:"off_link,omitempty"`
	// Small: the path of its tunnel drops fragments.
	Small bool `json:"small,omitempty"`
	// Coming are addresses that this host sends to where the guest is now, and which come back with it, because their
	// home is here or they passed through; Sent are the entries that they replaced, by detour, until the guest runs
	// here.
	Coming []netstate.Visiting        `json:"coming,omitempty"`
	Sent   map[string][]netstate.Away `json:"sent,omitempty"`
	// Leaving are addresses that go home with the guest to another host of this site, each with the MAC of its other
	// NIC (Known). From the flip on (Led, which is not on the disk) what neighbours here send to them goes after the
	// guest.
	Leaving []netstate.Visiting `json:"leaving,omitempty"`
	Led     bool                `json:"-"`
	// Standing are addresses of another host that this one, its subnet agent, is to send away
	// as soon as the tunnel stands at both ends; see Stand.
	Standing []netstate.Away `json:"standing,omitempty"`
	// Asked are the addresses that the peer may have sent to it, once it has asked its host to go.
	Asked []netip.Addr `json:"asked,omitempty"`
	// Lender is the subnet agent that stands for addresses that come here, Lends, and gives them back, for the move
	// Lending; Lent: it was asked to. Beside them may come others, whose home is this host itself.
	Lender  string       `json:"lender,omitempty"`
	Lends   []netip.Addr `json:"lends,omitempty"`
	Lending string       `json:"lending,omitempty"`
	Lent    bool         `json:"lent,omitempty"`
	// LentTo is the last move that made ready to have the addresses back that this subnet agent sends away; LentBack
	// the last of which it heard that the guest did not come.
	LentTo   string    `json:"lent_to,omitempty"`
	LentBack string    `json:"lent_back,omitempty"`
	Up       time.Time `json:"up"`
	Until    time.Time `json:"until,omitzero"` // end of the lease; zero: a migration is under way, or for good
	Leased   bool      `json:"leased"`         // nobody migrates; the lease alone keeps it

	For time.Duration `json:"lease_for,omitempty"` // how long the lease was when it was given; 0: for good

	// Booted is when the host's kernel began to run, by the clock that Up and Until are by, and Boot names that run.
	Booted time.Time `json:"booted,omitzero"`
	Boot   string    `json:"boot,omitempty"`
}

// Addresses of the guest that take the detour.
func (d *Detour) Addresses() []netip.Addr {
	var out []netip.Addr
	for _, a := range d.Away {
		out = append(out, a.Addr)
	}
	for _, v := range d.Visiting {
		out = append(out, v.Addr)
	}
	for _, s := range d.Standing {
		out = append(out, s.Addr)
	}
	return out
}

// Taking are those of Addresses that take its tunnel: not what is at home here.
func (d *Detour) Taking() []netip.Addr {
	out := []netip.Addr{}
	for _, addr := range d.Addresses() {
		if !slices.ContainsFunc(d.Visiting, func(v netstate.Visiting) bool { return v.Addr == addr && v.AtHome() }) {
			out = append(out, addr)
		}
	}
	return out
}

// LedAway are the addresses that packets are led away from here by it.
func (d *Detour) LedAway() []netip.Addr {
	var out []netip.Addr
	for _, a := range d.Away {
		out = append(out, a.Addr)
	}
	return out
}

// Leave keeps what the guest, which has gone, still needs here: the way to it of
// needed addresses, and, where those only pass through, their way home: a visit without taps, to
// which nothing leads any more, whichever of the guest's detours ends first.
func (d *Detour) Leave(needed []netip.Addr) {
	d.Taps, d.Coming, d.Sent, d.OffLink, d.Leaving = nil, nil, nil, nil, nil
	d.Away = slices.DeleteFunc(d.Away, func(a netstate.Away) bool { return !slices.Contains(needed, a.Addr) })
	for i := range d.Away {
		d.Away[i].Tap = ""
	}
	d.Visiting = slices.DeleteFunc(d.Visiting, func(v netstate.Visiting) bool {
		return v.AtHome() || !slices.Contains(needed, v.Addr)
	})
	for i := range d.Visiting {
		d.Visiting[i].Tap, d.Visiting[i].Taps = "", nil
	}
}

// Store is all of a host's detours, kept on the disk so that a restarted agent knows what its kernel
// state is for. It is safe for use by many. What it returns are copies.
type Store struct {
	mu      sync.Mutex // not held while the disk is waited for: a flip would be, too
	path    string
	byID    map[string]*Detour
	made    uint64                    // changes so far
	stale   map[string]uint64         // guests of whom the kernel, or the disk, has not taken a change, by its number
	stood   map[string]netstate.State // by guest, as the kernel took it last
	network config.Network
	rules   uint32       // generation of the host's nftables at the last look of PutBack; 0: the next is at all guests
	own     []netip.Addr // what the host had when it was asked last, see learn

	steps   clockSteps
	stepped time.Duration // by which times were moved along, and nobody was told yet

	writing sync.Mutex // before mu
	written uint64     // changes that are in the file
}

// New keeps all in path, by id, for a host with that network. What the kernel has of them is not
// known: it follows with the next change of each guest's.
func New(path string, n config.Network, all map[string]*Detour) *Store {
	s := &Store{path: path, byID: all, stale: map[string]uint64{}, stood: map[string]netstate.State{}, network: n}
	s.now() // steps are noticed from here on
	return s
}

// Load reads what an earlier agent kept in path, as the kernel had it then. A file that cannot be read or
// meant is an error, statefile.ErrUnread; none at all is a host without detours.
func Load(path string, n config.Network) (*Store, error) {
	var written writtenDetours
	if err := statefile.Read(path, &written); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("detours: %w", err)
	}
	s := New(path, n, map[string]*Detour{})
	maps.Copy(s.byID, written)
	for _, d := range s.byID {
		d.onLink(n)
	}
	s.caughtUp()
	s.believe(clock.Now())
	s.own, _ = hostHas(n.Bridge) // PutBack asks again
	for guest := range s.guests() {
		s.stood[guest] = s.want(guest)
	}
	return s, nil
}

// Flip sends the guest's packets into the detour (active), or back, without the
// disk in the way. On error the kernel may have part of it; done twice, it is done once.
func (s *Store) Flip(id string, active bool) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	d, ok := s.byID[id]
	if !ok {
		return fmt.Errorf("flip detour %s: there is none", id)
	}
	d.Led = active
	for i := range d.Away {
		d.Away[i].Active = active
	}
	return s.apply(d.Guest)
}

// apply makes the kernel equal to what the guest's detours ask for together.
func (s *Store) apply(guest string) error {
	want := s.want(guest)
	if err := netstate.Replace(s.stood[guest], want); err != nil {
		return err
	}
	if want.Empty() {
		delete(s.stood, guest)
		return nil
	}
	if s.stood == nil {
		s.stood = map[string]netstate.State{}
	}
	s.stood[guest] = want
	return nil
}

// want is what the guest's detours ask for together. An address that came here by one
// detour and goes on by another is in transit: away by the new one, with the old one as
// its way home.
func (s *Store) want(guest string) netstate.State {
	state := netstate.State{Guest: guest, Bridge: s.network.Bridge, LAN: s.network.LAN}
	gone := map[netip.Addr]bool{}
	for _, d := range s.of(guest) {
		for _, t := range d.Taps {
			// Taps that wait for an address to come home must be open when it does.
			if len(d.Coming) == 0 && !slices.Contains(state.Taps, t) {
				state.Taps = append(state.Taps, t)
			}
		}
		for _, a := range d.Away {
			v, lives := s.wayHome(guest, a.Addr)
			if lives && !a.Active {
				continue // it lives here until the flip
			}
			if lives && !v.AtHome() { // in transit
				a.Home, a.Gateway = v.Tunnel, netip.Addr{}
				if s.routes(v) {
					a.Home = ""
				}
			}
			gone[a.Addr] = true
			state.Away = append(state.Away, a)
		}
	}
	for _, d := range s.of(guest) {
		for _, v := range d.Visiting {
			if !gone[v.Addr] && len(v.Taps) > 0 { // see Leave
				gone[v.Addr] = true // of two ways, the older one serves
				v.Fits, v.Direct = d.fits(v), v.Direct || s.routes(v)
				s.goesHome(guest, &v)
				state.Visiting = append(state.Visiting, v)
			}
		}
	}
	state.OffLink = offLinks(s.of(guest), state.Visiting)
	return state
}

// of lists a guest's detours, the oldest first.
func (s *Store) of(guest string) []*Detour {
	var out []*Detour
	for _, d := range s.byID {
		if d.Guest == guest {
			out = append(out, d)
		}
	}
	slices.SortFunc(out, func(a, b *Detour) int { return a.Up.Compare(b.Up) })
	return out
}

// List copies the detours of a guest, of all guests if it is "".
func (s *Store) List(guest string) []Detour {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.now()
	var out []Detour
	for _, d := range s.byID {
		if guest == "" || d.Guest == guest {
			out = append(out, d.clone())
		}
	}
	return out
}

// Get is the detour of that id; false: there is none.
func (s *Store) Get(id string) (Detour, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.now()
	d, ok := s.byID[id]
	if !ok {
		return Detour{}, false
	}
	return d.clone(), true
}

// clone is a copy that a later change of d does not reach.
func (d *Detour) clone() Detour {
	c := *d
	c.Taps, c.Away, c.Visiting = slices.Clone(d.Taps), slices.Clone(d.Away), slices.Clone(d.Visiting)
	c.Coming, c.Leaving, c.Standing = slices.Clone(d.Coming), slices.Clone(d.Leaving), slices.Clone(d.Standing)
	c.Sent, c.Asked, c.Lends = maps.Clone(d.Sent), slices.Clone(d.Asked), slices.Clone(d.Lends)
	for other, away := range c.Sent {
		c.Sent[other] = slices.Clone(away)
	}
	if d.OffLink != nil {
		off := *d.OffLink
		c.OffLink = &off
	}
	return c
}

// Remove takes a detour away, kernel state and tunnel. Nothing happens if there
// is none.
func (s *Store) Remove(ctx context.Context, id string) error {
	_, err := s.RemoveIf(ctx, id, func(*Detour) bool { return true })
	return err
}

// DropTunnel takes a tunnel down if there is one, and what is left of one that ended by itself. It asks no other: one that
// does not answer holds up nobody else's end.
func DropTunnel(ctx context.Context, dir, name string) error {
	if name == "" { // of a detour without
		return nil
	}
	return tunnel.Down(ctx, dir, name)
}
