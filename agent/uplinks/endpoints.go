package uplinks

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"golang.org/x/sys/unix"

	"godwit/agent/statefile"
	"godwit/netstate/mptcp"
)

// The first MPTCP endpoint id that a host uses for memory: of addresses that it announces as a
// destination, and of those that it joins from as a source. MaxEndpoints ids from each are Godwit's.
const endpointBase, joinBase = 200, 220

const (
	announces = mptcp.FlagSignal
	joins     = mptcp.FlagSubflow | mptcp.FlagFullmesh
)

// Endpoints are this host's addresses that migrations have made known to the kernel's path
// manager, and its limits, which are raised for them. Migrations of one host share them: deleting one
// closes the subflows on it of every connection, so the last user does it. The zero value has none.
type Endpoints struct {
	// Kept is a file of the host's own limits while they are raised, for the agent after one that is killed; "": none.
	Kept string

	mu     sync.Mutex
	users  map[Endpoint]int // those that none uses any more, and that could not be taken away yet, too
	before mptcp.Limits     // the host's own, while limitsUse is among users
	owed   bool             // Sweep has failed: what an earlier agent left is there yet
}

// Endpoint is one use of an address, or of the limits that were raised.
type Endpoint struct {
	id   uint8
	addr netip.Addr
}

// limitsUse stands for the use of raised limits among those of endpoints.
var limitsUse = Endpoint{}

// mostLimits are what the kernel allows at most.
var mostLimits = mptcp.Limits{Subflows: 8, AddAddrAccepted: 8}

// RaiseLimits lets the path manager make as many subflows as it can, until Drop. On error
// they are as they were.
func (e *Endpoints) RaiseLimits() ([]Endpoint, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if _, raised := e.users[limitsUse]; !raised {
		if err := e.sweepOwed(); err != nil { // else raised limits would be taken for the host's own
			return nil, err
		}
		before, err := mptcp.ReadLimits()
		if err == nil && e.Kept != "" {
			err = statefile.Write(e.Kept, before)
		}
		if err == nil {
			err = mptcp.SetLimits(mostLimits.Subflows, mostLimits.AddAddrAccepted)
		}
		if err != nil {
			return nil, errors.Join(err, e.forget())
		}
		e.before = before
	}
	return []Endpoint{e.use(limitsUse)}, nil
}

// restore gives the host its own limits back, unless somebody has set others meanwhile.
func (e *Endpoints) restore() error {
	now, err := mptcp.ReadLimits()
	if err == nil && now == mostLimits {
		err = mptcp.SetLimits(e.before.Subflows, e.before.AddAddrAccepted)
	}
	if err != nil {
		return err
	}
	return e.forget()
}

// forget removes what was kept of the host's limits.
func (e *Endpoints) forget() error {
	if err := os.Remove(e.Kept); e.Kept != "" && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

func (e *Endpoints) use(at Endpoint) Endpoint {
	if e.users == nil {
		e.users = map[Endpoint]int{}
	}
	e.users[at]++
	return at
}

// add makes addrs known, each under the first id from base that is free. An address that is known
// already, in other ways than by a migration with this base, is left as it is: subflows take it where its
// flags let them. On error it returns those that were added; drop takes them away.
func (e *Endpoints) add(addrs []netip.Addr, base uint8, flags mptcp.Flags) (added []Endpoint, err error) {
	if added, err = e.RaiseLimits(); err != nil {
		return nil, err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, addr := range addrs {
		at, err := e.one(addr, base, flags)
		if errors.Is(err, os.ErrExist) || errors.Is(err, unix.EBUSY) {
			continue // not ours; or the kernel's own, of an address that a connection has
		}
		if err != nil {
			return added, fmt.Errorf("use %s for memory: %w", addr, err)
		}
		added = append(added, e.use(at))
	}
	return added, nil
}

func (e *Endpoints) one(addr netip.Addr, base uint8, flags mptcp.Flags) (at Endpoint, err error) {
	for id := base; id < base+mptcp.MaxEndpoints; id++ {
		at = Endpoint{id, addr}
		if _, known := e.users[at]; known {
			return at, nil
		}
	}
	for id := base; id < base+mptcp.MaxEndpoints; id++ {
		at = Endpoint{id, addr}
		if err = mptcp.AddEndpoint(mptcp.Endpoint{ID: id, Addr: addr, Flags: flags}); !errors.Is(err, unix.EBUSY) { // the id is another's
			break
		}
	}
	return at, err
}

// Announce makes addrs known as those of a destination, which the other host's path manager is told of.
// On error it returns what Drop is to take away all the same.
func (e *Endpoints) Announce(addrs []netip.Addr) ([]Endpoint, error) {
	return e.add(addrs, endpointBase, announces)
}

// JoinFrom makes addrs known as those of a source, from each of which its path manager joins; else as Announce.
func (e *Endpoints) JoinFrom(addrs []netip.Addr) ([]Endpoint, error) {
	return e.add(addrs, joinBase, joins)
}

// Drop ends one use of each; what nobody uses any more goes. What the kernel cannot be asked for just now stays:
// CatchUp sees to that.
func (e *Endpoints) Drop(added []Endpoint) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, at := range added {
		e.users[at]--
	}
	return e.dropUnused()
}

// CatchUp takes away what nobody uses any more and could not be taken away, as by a host that had no descriptor left:
// no later use of it would, and the host would have raised limits for its own.
func (e *Endpoints) CatchUp() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	return errors.Join(e.dropUnused(), e.sweepOwed())
}

func (e *Endpoints) dropUnused() (err error) {
	for at, users := range e.users {
		if users > 0 {
			continue
		}
		end := e.restore
		if at != limitsUse {
			end = func() error { return mptcp.DelEndpoint(at.id, at.addr) }
		}
		failed := end()
		if failed == nil {
			delete(e.users, at)
		}
		err = errors.Join(err, failed)
	}
	return err
}

// KeptIn is the file of limits of the agent whose RUN is run; it is as short-lived as they are.
func KeptIn(run string) string { return filepath.Join(run, "mptcp-limits.json") }

// Left says what Sweep would change, one thing each; of an agent that runs, also what its migrations use.
func (e *Endpoints) Left() ([]string, error) {
	ours, err := migrations()
	var out []string
	for _, at := range ours {
		out = append(out, fmt.Sprintf("endpoint %d, %s", at.ID, at.Addr))
	}
	if _, missing := os.Stat(e.Kept); missing == nil {
		out = append(out, "raised limits")
	}
	return out, err
}

// migrations are the endpoints that agents make, which name no device; none where the kernel has no MPTCP.
func migrations() ([]mptcp.Endpoint, error) {
	known, err := mptcp.Endpoints()
	if errors.Is(err, mptcp.ErrUnsupported) {
		return nil, nil
	}
	return slices.DeleteFunc(known, func(at mptcp.Endpoint) bool {
		of := func(base uint8) bool { return at.ID >= base && at.ID < base+mptcp.MaxEndpoints }
		return at.Dev != "" || !(of(endpointBase) && at.Flags == announces || of(joinBase) && at.Flags == joins)
	}), err
}

// Sweep deletes what an agent that was killed left in the path manager, and gives the host its own limits back:
// no connection for memory outlives its agent. It is for the start; what fails CatchUp repeats.
func (e *Endpoints) Sweep() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.owed = true
	return e.sweepOwed()
}

// sweepOwed is Sweep where that is owed. mu is held.
func (e *Endpoints) sweepOwed() error {
	if !e.owed {
		return nil
	}
	ours, err := migrations()
	for _, at := range ours {
		err = errors.Join(err, mptcp.DelEndpoint(at.ID, at.Addr))
	}
	switch kept := statefile.Read(e.Kept, &e.before); {
	case errors.Is(kept, os.ErrNotExist):
	case kept != nil:
		err = errors.Join(err, kept)
	default:
		err = errors.Join(err, e.restore())
	}
	e.owed = err != nil
	return err
}
