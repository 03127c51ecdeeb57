package netstate_test

import (
	"testing"

	"godwit/netstate"
)

// TestKilled: wherever a change was cut short, whoever makes it again, or another, or ends the guest's, leaves
// nothing of it that no notes speak of.
func TestKilled(t *testing.T) {
	w := newWorld(t, "wireguard")
	before := w.dumps()
	fewer := home(true)
	fewer.Away = fewer.Away[:1]
	for _, c := range []struct {
		name, host string
		from, to   netstate.State
	}{
		{"the guest runs here", "hb", waiting(), abroad()},
		{"flip", "ha", home(false), home(true)},
		{"flip back", "ha", home(true), home(false)},
		{"it is to leave for its home on this link", "hb", abroad(), leaving(false)},
		{"it leaves", "hb", leaving(false), leaving(true)},
		{"it stays", "hb", leaving(true), leaving(false)},
		{"one address has ended", "ha", home(true), fewer},
		{"one has ended, the other was flipped", "ha", home(false), fewer},
	} {
		for killed, after := true, 0; killed; after++ {
			for _, then := range []struct {
				name string
				set  func()
			}{
				{"again", func() { w.set(c.host, c.to) }},
				{"back", func() { w.set(c.host, c.from) }},
				{"cleared", func() {}},
			} {
				w.set(c.host, c.from)
				w.Do(c.host, func() (err error) { killed, err = netstate.SetKilled(c.to, after); return err })
				then.set()
				w.Do(c.host, func() error {
					inv, err := netstate.Found()
					if len(inv.Stray) > 0 {
						t.Errorf("%s, killed after %d steps, %s: nobody's: %v", c.name, after, then.name, inv.Stray)
					}
					return err
				})
				w.cleared(before, "web")
			}
		}
	}
}

// TestKilledBeforeAFlip: what a change that was cut short has written down, and not made, is not taken for what is
// there by who flips what it was about, as where an agent was killed twice as it led to a guest again.
func TestKilledBeforeAFlip(t *testing.T) {
	w := newWorld(t, "wireguard")
	before := w.dumps()
	for killed, after := true, 0; killed; after++ {
		w.Do("ha", func() (err error) { killed, err = netstate.SetKilled(home(false), after); return err })
		w.set("ha", home(true))
		w.cleared(before, "web")
	}
}
