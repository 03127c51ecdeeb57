package agent

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"testing"

	"godwit/agent/peer"
	"godwit/internal/need"
	"godwit/netstate/mptcp"
	"godwit/netstate/netns"
)

// TestEndpointsOfSeveralMigrations: each address of each migration gets an id of its own, and what one
// takes away at its end is its own alone.
func TestEndpointsOfSeveralMigrations(t *testing.T) {
	need.Root(t)
	name := fmt.Sprintf("t-agent-%d", os.Getpid())
	if err := netns.Create(name); err != nil {
		t.Fatal(err)
	}
	defer netns.Delete(name) //nolint:errcheck // it goes with the machine
	paths := func(addrs ...string) (out []peer.Path) {
		for _, a := range addrs {
			out = append(out, peer.Path{Local: netip.MustParseAddr(a)})
		}
		return out
	}
	if err := netns.Do(name, func() error {
		first, err := addEndpoints(paths("10.0.0.1", "10.0.1.1"), endpointBase, mptcp.FlagSignal)
		if err != nil || len(first) != 2 {
			return fmt.Errorf("first: %v, %w", first, err)
		}
		second, err := addEndpoints(paths("10.0.2.1", "10.0.1.1", "10.0.3.1"), endpointBase, mptcp.FlagSignal)
		if err != nil || len(second) != 2 {
			return fmt.Errorf("second, of which one address is known: %v, %w", second, err)
		}
		if _, err := addEndpoint(netip.MustParseAddr("10.0.0.1"), endpointBase, mptcp.FlagSignal); !errors.Is(err, os.ErrExist) {
			return fmt.Errorf("a known address: %w", err)
		}
		m := &outgoing{work: &sourceWork{endpoints: second}}
		if err := m.dropEndpoints(); err != nil {
			return err
		}
		left, err := mptcp.Endpoints()
		if err != nil || len(left) != 2 || left[0].Addr != first[0].addr || left[1].Addr != first[1].addr {
			return fmt.Errorf("left %v, %w", left, err)
		}
		return nil
	}); err != nil {
		t.Error(err)
	}
}
