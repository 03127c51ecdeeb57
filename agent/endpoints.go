package agent

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"godwit/netstate/mptcp"
)

// The first MPTCP endpoint id that a host uses for memory: of addresses that it announces as a
// destination, and of those that it joins from as a source. MaxEndpoints ids from each are Godwit's.
const endpointBase, joinBase = 200, 220

const (
	announces = mptcp.FlagSignal
	joins     = mptcp.FlagSubflow | mptcp.FlagFullmesh
)

// endpoints are this host's addresses that migrations have made known to the kernel's path
// manager, and its limits, which are raised for them. Migrations of one host share them: deleting one
// closes the subflows on it of every connection, so the last user does it. The zero value has none.
type endpoints struct {
	mu     sync.Mutex
	users  map[endpointAt]int
	before mptcp.Limits // the host's own, while limitsUse has users
}

type endpointAt struct {
	id   uint8
	addr netip.Addr
}

// limitsUse stands for the use of raised limits among those of endpoints.
var limitsUse = endpointAt{}

// mostLimits are what the kernel allows at most.
var mostLimits = mptcp.Limits{Subflows: 8, AddAddrAccepted: 8}

// raise lets the path manager make as many subflows as it can, until drop.
func (e *endpoints) raise() ([]endpointAt, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.users[limitsUse] == 0 {
		before, err := mptcp.ReadLimits()
		if err == nil {
			err = mptcp.SetLimits(mostLimits.Subflows, mostLimits.AddAddrAccepted)
		}
		if err != nil {
			return nil, err
		}
		e.before = before
	}
	return []endpointAt{e.use(limitsUse)}, nil
}

// restore gives the host its own limits back, unless somebody has set others meanwhile. Those of an
// agent that was killed are not known any more.
func (e *endpoints) restore() error {
	if now, err := mptcp.ReadLimits(); err != nil || now != mostLimits {
		return err
	}
	return mptcp.SetLimits(e.before.Subflows, e.before.AddAddrAccepted)
}

func (e *endpoints) use(at endpointAt) endpointAt {
	if e.users == nil {
		e.users = map[endpointAt]int{}
	}
	e.users[at]++
	return at
}

// add makes addrs known, each under the first id from base that is free. An address that is known
// already, in other ways than by a migration with this base, is left as it is: subflows take it where its
// flags let them. On error it returns those that were added; drop takes them away.
func (e *endpoints) add(addrs []netip.Addr, base uint8, flags mptcp.Flags) (added []endpointAt, err error) {
	if added, err = e.raise(); err != nil {
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

func (e *endpoints) one(addr netip.Addr, base uint8, flags mptcp.Flags) (at endpointAt, err error) {
	for id := base; id < base+mptcp.MaxEndpoints; id++ {
		if at = (endpointAt{id, addr}); e.users[at] > 0 {
			return at, nil
		}
	}
	for id := base; id < base+mptcp.MaxEndpoints; id++ {
		at = endpointAt{id, addr}
		if err = mptcp.AddEndpoint(mptcp.Endpoint{ID: id, Addr: addr, Flags: flags}); !errors.Is(err, unix.EBUSY) { // the id is another's
			break
		}
	}
	return at, err
}

// drop ends one use of each.
func (e *endpoints) drop(added []endpointAt) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	var err error
	for _, at := range added {
		if e.users[at]--; e.users[at] <= 0 {
			delete(e.users, at)
			if at == limitsUse {
				err = errors.Join(err, e.restore())
				continue
			}
			err = errors.Join(err, mptcp.DelEndpoint(at.id, at.addr))
		}
	}
	return err
}

// sweepEndpoints deletes what an agent that was killed left in the path manager: no connection for
// memory outlives its agent.
func sweepEndpoints() error {
	known, err := mptcp.Endpoints()
	if errors.Is(err, mptcp.ErrUnsupported) {
		return nil
	}
	for _, e := range known {
		of := func(base uint8) bool { return e.ID >= base && e.ID < base+mptcp.MaxEndpoints }
		if of(endpointBase) && e.Flags == announces || of(joinBase) && e.Flags == joins {
			err = errors.Join(err, mptcp.DelEndpoint(e.ID, e.Addr))
		}
	}
	return err
}
