package netstate

import (
	"errors"
	"os/exec"
	"testing"

	"godwit/internal/need"
	"godwit/netstate/dump"
	"godwit/netstate/netns"
)

// TestSteady: what is read of nftables while somebody changes it is read again, and not for ever; if
// that does not concern what is read, it is believed.
func TestSteady(t *testing.T) {
	need.Root(t)
	need.Program(t, "nft")
	const name = "gw-test-steady"
	netns.Delete(name) //nolint:errcheck // of a test that was killed
	if err := netns.Create(name); err != nil {
		t.Fatal(err)
	}
	defer netns.Delete(name) //nolint:errcheck // it goes with the machine
	for _, c := range []struct {
		changes, calls int
		others         bool // are concerned
		gives          bool
	}{{0, 1, false, true}, {2, 3, false, true}, {1000, 10, false, false}, {1000, agreeing, true, true}} {
		calls := 0
		err := netns.Do(name, func() error {
			_, err := steady(func() (int, error) {
				if calls++; calls <= c.changes {
					err := exec.Command("nft", "add table inet other; delete table inet other").Run()
					if c.others {
						return 0, err
					}
					return calls, err
				}
				return calls, nil
			})
			return err
		})
		if calls != c.calls || errors.Is(err, dump.Interrupted) == c.gives || err != nil && c.gives {
			t.Errorf("%d changes, of others %v: %d calls, %v; want %d calls", c.changes, c.others, calls, err, c.calls)
		}
	}
}
