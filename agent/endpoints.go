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
// manager. Migrations of one host share them: deleting one closes the subflows on it of every
// connection, so the last user does it. The zero value has none.
type endpoints struct {
	mu    sync.Mutex
	users map[endpointAt]int
}

type endpointAt struct {
	id   uint8
	addr netip.Addr
}

// add makes addrs known, each under the first id from base that is free. An address that is known
// already, in other ways than by a migration with this base, is left as it is: subflows take it where its
// flags let them. On error it returns those that were added; drop takes them away.
func (e *endpoints) add(addrs []netip.Addr, base uint8, flags mptcp.Flags) (added []endpointAt, err error) {
	if err := mptcp.SetLimits(8, 8); err != nil {
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
		if e.users == nil {
			e.users = map[endpointAt]int{}
		}
		e.users[at]++
		added = append(added, at)
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
