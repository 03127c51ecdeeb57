package netstate

import (
	"errors"
	"os/exec"
	"testing"

	"godwit/internal/need"
	"godwit/netstate/dump"
	"godwit/netstate/netns"
)

// TestSteady: what is read of nftables while somebody changes it is read again, and not for ever.
func TestSteady(t *testing.T) {
	need.Root(t)
	need.Program(t, "nft")
	const name = "gw-test-steady"
	netns.Delete(name) //nolint:errcheck // of a test that was killed
	if err := netns.Create(name); err != nil {
		t.Fatal(err)
	}
	defer netns.Delete(name) //nolint:errcheck // it goes with the machine
	for _, c := range []struct{ changes, calls int }{{0, 1}, {2, 3}, {1000, 10}} {
		calls := 0
		err := netns.Do(name, func() error {
			_, err := steady(func() (int, error) {
				if calls++; calls <= c.changes {
					return 0, exec.Command("nft", "add table inet other; delete table inet other").Run()
				}
				return calls, nil
			})
			return err
		})
		if calls != c.calls || errors.Is(err, dump.Interrupted) != (c.changes > c.calls) || err != nil && c.changes <= c.calls {
			t.Errorf("%d changes: %d calls, %v; want %d calls", c.changes, calls, err, c.calls)
		}
	}
}
