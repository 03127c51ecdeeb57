package dump

import (
	"errors"
	"fmt"
	"testing"

	"github.com/vishvananda/netlink"
)

// TestWhole: a list is read again while the kernel says that it was disturbed, and not
// for ever; any other error is told at once.
func TestWhole(t *testing.T) {
	other := errors.New("no such device")
	for _, c := range []struct {
		name      string
		disturbed int
		then      error
		calls     int
		want      error
	}{
		{"quiet", 0, nil, 1, nil},
		{"disturbed twice", 2, nil, 3, nil},
		{"never quiet", 1000, nil, tries, netlink.ErrDumpInterrupted},
		{"another error", 1, other, 2, other},
	} {
		t.Run(c.name, func(t *testing.T) {
			calls := 0
			_, err := Whole(func() (int, error) {
				if calls++; calls <= c.disturbed {
					return 0, fmt.Errorf("list: %w", netlink.ErrDumpInterrupted)
				}
				return calls, c.then
			})
			if calls != c.calls || !errors.Is(err, c.want) {
				t.Errorf("%d calls, %v; want %d, %v", calls, err, c.calls, c.want)
			}
		})
	}
}
