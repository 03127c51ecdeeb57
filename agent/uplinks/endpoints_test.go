package uplinks

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"

	"godwit/internal/lasting/lastingtest"
	"godwit/internal/need"
	"godwit/netstate/mptcp"
	"godwit/netstate/netns"
)

// TestEndpointsOfSeveralMigrations: each address gets an id of its own, migrations share what they have in
// common, and the last of them takes it away. What else is known stays as it is.
func TestEndpointsOfSeveralMigrations(t *testing.T) {
	inNetns(t, func() error {
		elsewhere := mptcp.Endpoint{ID: endpointBase + 1, Addr: netip.MustParseAddr("10.0.9.1"), Flags: mptcp.FlagSubflow}
		if err := mptcp.AddEndpoint(elsewhere); err != nil {
			return err
		}
		var e Endpoints
		first, err := e.add(addrs("10.0.0.1", "10.0.1.1"), endpointBase, announces)
		if err != nil || len(first) != 3 {
			return fmt.Errorf("first: %v, %w", first, err)
		}
		second, err := e.add(addrs("10.0.2.1", "10.0.1.1", "10.0.9.1"), endpointBase, announces)
		if err != nil || len(second) != 3 || second[2] != first[2] {
			return fmt.Errorf("second, of which one address is shared and one a user's: %v, %w", second, err)
		}
		joined, err := e.add(addrs("10.0.0.1"), joinBase, joins)
		if err != nil || len(joined) != 1 {
			return fmt.Errorf("an address that is announced: %v, %w", joined, err)
		}
		if err := e.Drop(joined); err != nil {
			return err
		}
		if err := e.Drop(first); err != nil {
			return err
		}
		if err := knows("10.0.1.1", "10.0.2.1", "10.0.9.1"); err != nil {
			return fmt.Errorf("after the first: %w", err)
		}
		if err := e.Drop(second); err != nil {
			return err
		}
		return knows("10.0.9.1")
	})
}

// TestEndpointsOfAnEarlierAgent: an agent that starts takes away what one that was killed has left,
// and nothing else.
func TestEndpointsOfAnEarlierAgent(t *testing.T) {
	inNetns(t, func() error {
		var killed Endpoints
		if _, err := killed.add(addrs("10.0.0.1", "10.0.1.1"), endpointBase, announces); err != nil {
			return err
		}
		if _, err := killed.add(addrs("10.0.2.1"), joinBase, joins); err != nil {
			return err
		}
		for _, users := range []mptcp.Endpoint{
			{ID: 1, Addr: netip.MustParseAddr("10.0.3.1"), Flags: announces},
			{ID: joinBase + 3, Addr: netip.MustParseAddr("10.0.4.1"), Flags: mptcp.FlagSubflow},
			{ID: endpointBase + 4, Addr: netip.MustParseAddr("10.0.5.1"), Dev: "lo", Flags: announces},
		} {
			if err := mptcp.AddEndpoint(users); err != nil {
				return err
			}
		}
		if err := new(Endpoints).Sweep(); err != nil {
			return err
		}
		return knows("10.0.3.1", "10.0.4.1", "10.0.5.1")
	})
}

// TestLimitsAreRaisedForMigrations: the last of them gives the host its own back, unless a user has
// set others.
func TestLimitsAreRaisedForMigrations(t *testing.T) {
	inNetns(t, func() error {
		is := func(when string, want mptcp.Limits) error {
			if got, err := mptcp.ReadLimits(); err != nil || got != want {
				return fmt.Errorf("limits %s: %+v, want %+v: %w", when, got, want, err)
			}
			return nil
		}
		own := mptcp.Limits{Subflows: 3, AddAddrAccepted: 1}
		if err := mptcp.SetLimits(own.Subflows, own.AddAddrAccepted); err != nil {
			return err
		}
		var e Endpoints
		first, err := e.add(addrs("10.0.0.1"), endpointBase, announces)
		if err != nil {
			return err
		}
		second, err := e.RaiseLimits()
		if err != nil {
			return err
		}
		if err := errors.Join(e.Drop(first), is("while one goes on", mostLimits)); err != nil {
			return err
		}
		if err := errors.Join(e.Drop(second), is("after the last", own)); err != nil {
			return err
		}
		third, err := e.RaiseLimits()
		if err != nil {
			return err
		}
		if err := mptcp.SetLimits(5, 5); err != nil {
			return err
		}
		return errors.Join(e.Drop(third), is("that a user has set", mptcp.Limits{Subflows: 5, AddAddrAccepted: 5}))
	})
}

// TestLimitsOfAnEarlierAgent: the host gets its own limits back from the agent that starts after one that was killed
// with them raised, unless a user has set others; and nothing is kept when nobody uses them.
func TestLimitsOfAnEarlierAgent(t *testing.T) {
	inNetns(t, func() error {
		own, users, kept := mptcp.Limits{Subflows: 3, AddAddrAccepted: 1}, mptcp.Limits{Subflows: 5, AddAddrAccepted: 5}, filepath.Join(t.TempDir(), "limits.json")
		for _, c := range []struct{ meanwhile, want mptcp.Limits }{{mostLimits, own}, {users, users}} {
			if err := mptcp.SetLimits(own.Subflows, own.AddAddrAccepted); err != nil {
				return err
			}
			killed := Endpoints{Kept: kept}
			if _, err := killed.RaiseLimits(); err != nil {
				return err
			}
			if err := mptcp.SetLimits(c.meanwhile.Subflows, c.meanwhile.AddAddrAccepted); err != nil {
				return err
			}
			next := Endpoints{Kept: kept}
			for range 2 { // the second finds nothing
				if err := next.Sweep(); err != nil {
					return err
				}
			}
			if got, err := mptcp.ReadLimits(); err != nil || got != c.want {
				return fmt.Errorf("limits %+v, want %+v: %w", got, c.want, err)
			}
			raised, err := next.RaiseLimits()
			if err = errors.Join(err, next.Drop(raised)); err != nil {
				return err
			}
			if _, err := os.Stat(kept); !errors.Is(err, os.ErrNotExist) {
				return fmt.Errorf("kept when nobody uses them: %w", err)
			}
		}
		return nil
	})
}

// TestLimitsThatCouldNotBeGivenBackAtTheStart: the agent that starts after one that was killed may have no descriptor
// left just then. The raised limits are not the host's own to it, also where a migration begins before they could be
// given back.
func TestLimitsThatCouldNotBeGivenBackAtTheStart(t *testing.T) {
	inNetns(t, func() error {
		own := mptcp.Limits{Subflows: 3, AddAddrAccepted: 1}
		for _, migrates := range []bool{true, false} {
			if err := mptcp.SetLimits(own.Subflows, own.AddAddrAccepted); err != nil {
				return err
			}
			kept := filepath.Join(t.TempDir(), "limits.json")
			if _, err := (&Endpoints{Kept: kept}).RaiseLimits(); err != nil {
				return err
			}
			next := Endpoints{Kept: kept}
			if err := without(next.Sweep); !errors.Is(err, syscall.EMFILE) {
				return fmt.Errorf("no descriptor was left: %w", err)
			}
			if migrates {
				raised, err := next.RaiseLimits()
				if err = errors.Join(err, next.Drop(raised)); err != nil {
					return err
				}
			}
			if err := next.CatchUp(); err != nil {
				return err
			}
			if got, err := mptcp.ReadLimits(); err != nil || got != own {
				return fmt.Errorf("limits %+v, want %+v: %w", got, own, err)
			}
			if _, err := os.Stat(kept); !errors.Is(err, os.ErrNotExist) {
				return fmt.Errorf("kept when nobody uses them: %w", err)
			}
		}
		return nil
	})
}

func addrs(names ...string) (out []netip.Addr) {
	for _, name := range names {
		out = append(out, netip.MustParseAddr(name))
	}
	return out
}

// knows says where the path manager does not have endpoints of addrs and no others.
func knows(names ...string) error {
	known, err := mptcp.Endpoints()
	var at []netip.Addr
	for _, e := range known {
		at = append(at, e.Addr)
	}
	slices.SortFunc(at, netip.Addr.Compare)
	if err != nil || !slices.Equal(at, addrs(names...)) {
		return fmt.Errorf("endpoints %v, expected %v: %w", at, names, err)
	}
	return nil
}

func inNetns(t *testing.T, do func() error) {
	t.Helper()
	need.Root(t)
	name := fmt.Sprintf("t-uplinks-%d", os.Getpid())
	if err := netns.Create(name); err != nil {
		t.Fatal(err)
	}
	defer netns.Delete(name) //nolint:errcheck // it goes with the machine
	if err := netns.Do(name, do); err != nil {
		t.Error(err)
	}
}

// TestEndpointsThatCouldNotBeDropped: a host that has no descriptor left as a migration ends has none of its addresses
// announced, and its own limits, when it has some again, also where another migration begins before.
func TestEndpointsThatCouldNotBeDropped(t *testing.T) {
	inNetns(t, func() error {
		own := mptcp.Limits{Subflows: 3, AddAddrAccepted: 1}
		if err := mptcp.SetLimits(own.Subflows, own.AddAddrAccepted); err != nil {
			return err
		}
		e := Endpoints{Kept: filepath.Join(t.TempDir(), "limits.json")}
		first, err := e.add(addrs("10.0.0.1", "10.0.1.1"), endpointBase, announces)
		if err != nil {
			return err
		}
		if err := without(func() error { return e.Drop(first) }); !errors.Is(err, syscall.EMFILE) {
			return fmt.Errorf("no descriptor was left: %w", err)
		}
		second, err := e.add(addrs("10.0.1.1"), endpointBase, announces)
		if err != nil || len(second) != 2 {
			return fmt.Errorf("another migration: %v, %w", second, err)
		}
		if err := errors.Join(e.CatchUp(), knows("10.0.1.1")); err != nil {
			return fmt.Errorf("while that is under way: %w", err)
		}
		if err := without(func() error { return e.Drop(second) }); err == nil {
			return errors.New("no descriptor was left, and it is dropped")
		}
		for range 2 { // the second finds nothing
			if err := errors.Join(e.CatchUp(), knows()); err != nil {
				return err
			}
		}
		if got, err := mptcp.ReadLimits(); err != nil || got != own {
			return fmt.Errorf("limits %+v, want %+v: %w", got, own, err)
		}
		return nil
	})
}

// without does something while no file can be opened.
func without(do func() error) (done error) {
	err := lastingtest.WithoutDescriptors(func() { done = do() })
	return errors.Join(done, err)
}
