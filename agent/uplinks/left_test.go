package uplinks

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"godwit/agent/statefile"
	"godwit/netstate/mptcp"
)

// TestEndpointsAgain: an address that was dropped is announced again by the next migration, and the limits are raised again.
func TestEndpointsAgain(t *testing.T) {
	inNetns(t, func() error {
		if err := mptcp.SetLimits(3, 1); err != nil {
			return err
		}
		var e Endpoints
		for range 2 {
			used, err := e.Announce(addrs("10.0.0.1"))
			if err = errors.Join(err, knows("10.0.0.1")); err != nil {
				return err
			}
			if now, err := mptcp.ReadLimits(); err != nil || now != mostLimits {
				return fmt.Errorf("limits %+v, %w", now, err)
			}
			if err := errors.Join(e.Drop(used), knows()); err != nil {
				return err
			}
			if now, err := mptcp.ReadLimits(); err != nil || now != (mptcp.Limits{Subflows: 3, AddAddrAccepted: 1}) {
				return fmt.Errorf("limits afterwards %+v, %w", now, err)
			}
		}
		return nil
	})
}

// TestLeftEndpoints: what an agent would take away at its start is told: its endpoints and the limits that it raised,
// and nobody else's. What migrations have made known since is not taken away by what repeats that.
func TestLeftEndpoints(t *testing.T) {
	inNetns(t, func() error {
		user := mptcp.Endpoint{ID: 1, Addr: netip.MustParseAddr("10.0.3.1"), Flags: announces}
		if err := mptcp.AddEndpoint(user); err != nil {
			return err
		}
		e := Endpoints{Kept: filepath.Join(t.TempDir(), "limits.json")}
		left := func(want ...string) error {
			if got, err := e.Left(); err != nil || !slices.Equal(got, want) {
				return fmt.Errorf("left %q, want %q: %w", got, want, err)
			}
			return nil
		}
		if err := errors.Join(left(), e.Sweep()); err != nil {
			return err
		}
		used, err := e.Announce(addrs("10.0.0.1"))
		if err != nil {
			return err
		}
		all := []string{fmt.Sprintf("endpoint %d, 10.0.0.1", endpointBase), "raised limits"}
		if err := errors.Join(left(all...), e.CatchUp(), left(all...)); err != nil {
			return err
		}
		return errors.Join(e.Drop(used), left(), knows("10.0.3.1"))
	})
}

// TestKeptLimitsThatCannotBeRead: limits that an earlier agent raised, and whose file cannot be read, are told each
// time, and are not taken for the host's own.
func TestKeptLimitsThatCannotBeRead(t *testing.T) {
	inNetns(t, func() error {
		kept := filepath.Join(t.TempDir(), "limits.json")
		e := Endpoints{Kept: kept}
		if err := errors.Join(mptcp.SetLimits(mostLimits.Subflows, mostLimits.AddAddrAccepted), os.WriteFile(kept, []byte("{"), 0o600)); err != nil {
			return err
		}
		if err := e.Sweep(); err == nil {
			return errors.New("not told at the start")
		}
		for what, do := range map[string]func() error{
			"later":                       e.CatchUp,
			"to a migration":              func() error { _, err := e.RaiseLimits(); return err },
			"to one that has an endpoint": func() error { _, err := e.JoinFrom(addrs("10.0.0.1")); return err },
		} {
			if err := do(); err == nil {
				return fmt.Errorf("not told %s", what)
			}
		}
		if err := errors.Join(statefile.Write(kept, mptcp.Limits{Subflows: 3, AddAddrAccepted: 1}), e.CatchUp()); err != nil {
			return err
		}
		if now, err := mptcp.ReadLimits(); err != nil || now != (mptcp.Limits{Subflows: 3, AddAddrAccepted: 1}) {
			return fmt.Errorf("limits %+v, %w", now, err)
		}
		return nil
	})
}

// TestLimitsThatCannotBeKept: limits that could not be written down are not raised, and no migration has them.
func TestLimitsThatCannotBeKept(t *testing.T) {
	inNetns(t, func() error {
		before, err := mptcp.ReadLimits()
		if err != nil {
			return err
		}
		e := Endpoints{Kept: filepath.Join(t.TempDir(), "none", "limits.json")}
		if err := os.WriteFile(filepath.Dir(e.Kept), nil, 0o600); err != nil { // a file where its directory should be
			return err
		}
		if used, err := e.RaiseLimits(); err == nil || len(used) > 0 || len(e.users) > 0 {
			return fmt.Errorf("raised: %v, %w", used, err)
		}
		if now, err := mptcp.ReadLimits(); err != nil || now != before {
			return fmt.Errorf("limits %+v, were %+v, %w", now, before, err)
		}
		return nil
	})
}
