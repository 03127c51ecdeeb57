// Package guests has the guests of a host: those under care, and those that are being started, received, waited for or
// let go.
//
// It owns what is remembered of each (package care) and its files, by which the next agent finds it again, the QEMU that
// runs it, the descriptors of its taps, how it is asked, and who has it at the moment. It decides nothing: who starts, moves
// or ends a guest does so with package agent, and takes the guest first.
//
// It keeps these: of one name, one MAC and one number there is one guest on a host; a guest of whom what was written
// cannot be read keeps its name and number; of two who would move or end a guest at once one is told who has it; and
// what changed of a guest is written down, also later where that failed, but never of one that has left.
package guests

import (
	"context"
	"fmt"
	"os"
	"slices"
	"sync"

	"godwit/agent/asking"
	"godwit/agent/care"
	"godwit/agent/line"
	"godwit/migration"
	"godwit/vm"
)

// Guest is a guest under care on this host, or one that is being started or received. What is
// remembered of it is kept on the disk once it is under care; Remember alone changes it.
type Guest struct {
	held    care.Held
	machine vm.Machine
	taps    []*os.File // our duplicates of the taps' descriptors; nil where not ours

	line   line.Line
	asks   asking.Asking
	ending sync.Mutex // see LockAddresses
	mu     sync.Mutex
	busy   string // who has it: the id of a migration, or a word for what else is done with it; see Take
	booted string // what became of it when it booted anew; "": it did not, as far as is known
}

// New is the guest of whom that is remembered, in a QEMU; nil: it has none, or none yet.
func New(h care.Held, m vm.Machine) *Guest { return &Guest{held: h, machine: m} }

// Take marks the guest as busy with migration id, or says who has it. A migration may take its own again; what else is
// done with a guest is done once at a time.
func (g *Guest) Take(id string) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.busy != "" && (g.busy != id || !migration.ValidID(id)) {
		text := fmt.Sprintf("migration %s of it is under way; wait for it, or `godwit abort %s`", g.busy, g.busy)
		if !migration.ValidID(g.busy) {
			text = fmt.Sprintf("something else is being done with it (%s); try again when that is over, and see `godwit guest ls`", g.busy)
		}
		return &migration.Problem{Code: migration.CodeBusy, Text: fmt.Sprintf("guest %s: %s", g.held.Description.Name, text)}
	}
	g.busy = id
	return nil
}

// Drop ends Take for who has it; for anybody else it does nothing.
func (g *Guest) Drop(id string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.busy == id {
		g.busy = ""
	}
}

// Migration is who has the guest: the id of a migration, or a word for what else is done with it; "": nobody.
func (g *Guest) Migration() string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.busy
}

// Held is what is remembered of the guest now, and does not change with it.
func (g *Guest) Held() care.Held {
	g.mu.Lock()
	defer g.mu.Unlock()
	h := g.held
	h.Addresses, h.Taps, h.ToDrop = slices.Clone(h.Addresses), slices.Clone(h.Taps), slices.Clone(h.ToDrop)
	return h
}

// Remember changes what is remembered of a guest under care, of which others ask meanwhile.
func (g *Guest) Remember(change func(*care.Held)) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.held.Addresses = slices.Clone(g.held.Addresses) // plans and reports have them, too, and who asked before: change may take some out in place
	change(&g.held)
}

// Name is what the guest is called on this host.
func (g *Guest) Name() string { return g.held.Description.Name }

// Machine is the QEMU that runs the guest, or waits for it; nil: it has none, or none yet.
func (g *Guest) Machine() vm.Machine {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.machine
}

// RunsIn gives the guest its QEMU.
func (g *Guest) RunsIn(m vm.Machine) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.machine = m
}

// Alive says whether the guest's QEMU still runs.
func (g *Guest) Alive() bool {
	m := g.Machine()
	if m == nil {
		return false
	}
	select {
	case <-m.Done():
		return false
	default:
		return true
	}
}

// SetLink plugs the cable of a NIC in, or pulls it, where the hypervisor can.
func (g *Guest) SetLink(ctx context.Context, mac string, up bool) error {
	cable, ok := g.Machine().(interface {
		SetLink(ctx context.Context, mac string, up bool) error
	})
	if !ok {
		return nil
	}
	return cable.SetLink(ctx, mac, up)
}

// LockAddresses is held while the end of a lease takes addresses from the guest, or it is given its own again.
func (g *Guest) LockAddresses() { g.ending.Lock() }

// TryLockAddresses is LockAddresses for who does not wait; false: somebody holds it.
func (g *Guest) TryLockAddresses() bool { return g.ending.TryLock() }

// UnlockAddresses ends LockAddresses.
func (g *Guest) UnlockAddresses() { g.ending.Unlock() }

// Asks says when the guest is asked again what it needs.
func (g *Guest) Asks() *asking.Asking { return &g.asks }

// SayBooted remembers for people what became of the guest when it booted anew.
func (g *Guest) SayBooted(text string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.booted = text
}

// Booted is what became of the guest when it booted anew; "": it did not.
func (g *Guest) Booted() string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.booted
}

// CloseFiles lets go of descriptors and the channel; the guest runs on.
func (g *Guest) CloseFiles() {
	if c := g.Channel(); c != nil {
		c.Close() // and stays: who asks it now is told that it is closed
	}
	g.mu.Lock()
	taps, m := g.taps, g.machine
	g.taps = nil
	g.mu.Unlock()
	for _, t := range taps {
		if t != nil {
			t.Close()
		}
	}
	if m != nil {
		m.Close()
	}
}
