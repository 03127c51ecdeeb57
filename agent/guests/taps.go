package guests

import (
	"fmt"
	"log/slog"
	"net"
	"os"
	"slices"

	"godwit/netstate/hold"
)

// TapName is the name of the tap of NIC i of the guest with that number.
func TapName(number, i int) string { return fmt.Sprintf("gwt%d%c", number, 'a'+i) }

// tapped says whether there is such a tap, of either NIC, although no guest is known to have that number: a QEMU has it
// of which nothing is written down, as its agent was killed before. No guest could come here by that number.
func tapped(number int) bool {
	return slices.ContainsFunc([]int{0, 1}, func(nic int) bool {
		_, err := net.InterfaceByName(TapName(number, nic))
		return err == nil
	})
}

// AddTap is that the guest's next NIC has a tap of that name, and this is our descriptor of it.
func (g *Guest) AddTap(name string, tap *os.File) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.held.Taps = append(slices.Clone(g.held.Taps), name)
	g.taps = append(g.taps, tap)
}

// Taps are our descriptors of the guest's taps, in the order of its NICs; nil where not ours.
func (g *Guest) Taps() []*os.File {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Clone(g.taps)
}

// FindTaps gets the descriptors of the guest's taps back from its QEMU.
func (g *Guest) FindTaps(log *slog.Logger) {
	m := g.Machine()
	var taps []*os.File
	for _, name := range g.Held().Taps {
		var tap *os.File
		if m != nil {
			var err error
			if tap, err = hold.Recover(m.PID(), name); err != nil {
				log.Warn("tap's descriptor not found again", "guest", g.Name(), "tap", name, "error", err)
			}
		}
		taps = append(taps, tap)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.taps = taps
}

// ActiveTap is our descriptor of the active NIC's tap, nil where there is none.
func (g *Guest) ActiveTap() *os.File {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.held.Active < len(g.taps) {
		return g.taps[g.held.Active]
	}
	return nil
}
