package agent

import (
	"fmt"
	"maps"
	"math"
	"os"
	"slices"
	"syscall"

	"godwit/agent/capable"
	"godwit/agent/talk"
	"godwit/migration"
)

// demand is what guests take up of a host, bytes; copies are those of their memory, see copied.
type demand struct{ memory, disk, copies int64 }

// ownOfQEMU is what a QEMU has in memory beside its guest's, bytes.
const ownOfQEMU = 64 << 20

// admitted is the next place in the order in which guests come; see owed. The caller holds a.mu.
func (a *Agent) admitted() uint64 {
	a.arrivals++
	return a.arrivals
}

// owed is what guests on their way here will still fill of what this host has free, of those that were admitted before
// that place. What they have filled already is not free any more. One that runs before its pages are here owes those.
func (a *Agent) owed(before uint64) (sum demand) {
	a.mu.Lock()
	coming := slices.Collect(maps.Values(a.incoming))
	a.mu.Unlock()
	for _, m := range coming { // not under a.mu: a disk that hangs would hold up every migration
		m.mu.Lock()
		state, offer := m.state, m.offer // its handover changes the plan
		m.mu.Unlock()
		if m.order >= before || state.Refused() || state.Vanished || state.Running() && !m.pagesFollow(offer.Plan) {
			continue
		}
		owes := m.owes()
		sum.memory += owes.memory
		if state.Running() { // its disks are whole, and so is its copy but for those pages
			continue
		}
		if sum.disk += owes.disk; !state.Loaded { // else QEMU has all, and its copy is whole, or gone
			sum.copies += max(0, copiedOf(offer)-m.copiedNow())
		}
	}
	return sum
}

// everyone is the place behind all that were admitted.
const everyone = math.MaxUint64

// owes is what this guest will still fill. Memory in huge pages was reserved as its QEMU was started.
func (m *incoming) owes() (d demand) {
	facts := m.work.preparation.Facts
	if facts.PageSize <= int64(os.Getpagesize()) {
		d.memory = facts.Memory
		if g := m.visible(); g != nil && g.Machine() != nil {
			d.memory -= min(d.memory, max(capable.ResidentBytes(g.Machine().PID())-ownOfQEMU, 0))
		}
	}
	if _, sum, err := capable.DiskSizes(m.work.preparation.Description, facts); err == nil {
		d.disk = sum
		for _, disk := range m.madeDisks() {
			if info, err := statFile(disk.Path); err == nil {
				if stat, ok := info.Sys().(*syscall.Stat_t); ok {
					d.disk -= min(d.disk, stat.Blocks*512)
				}
			}
		}
	}
	return d
}

// copiedNow is how much of the copy of this guest's memory is there, bytes.
func (m *incoming) copiedNow() int64 {
	if lanes := m.lanes(); lanes != nil {
		return lanes.Copied()
	}
	return 0
}

// statFile is os.Stat. Tests have a slower disk.
var statFile = os.Stat

// roomForAll says whether this host has the memory and the disk for the offered guest, beside those that were
// admitted before that place.
func (a *Agent) roomForAll(offer talk.Offer, before uint64) error {
	owed := a.owed(before)
	here := capable.Host{Name: a.config.Host, Reserve: a.config.MemoryReserve, Free: -1, Owed: owed.memory, Huge: capable.FreeHugePages(offer.Facts.PageSize)}
	if free, err := capable.AvailableMemory(); err == nil {
		here.Free = free
	}
	if err := here.LacksMemory(offer.Guest()); err != nil {
		return err
	}
	_, sum, err := capable.DiskSizes(offer.Description, offer.Facts)
	if err != nil {
		return err
	}
	shared := a.share("", "disks")
	if need := sum + owed.disk; sum > 0 {
		if shared {
			need += owed.copies
		}
		if err := a.roomOnDisk(offer, "disks", need, fmt.Sprintf("%s (%d MiB stay in reserve)", capable.Beside(need-sum), diskReserve>>20)); err != nil {
			return err
		}
	}
	if copied := copiedOf(offer); copied > 0 { // it goes again, and may take the reserve meanwhile
		if !shared {
			sum, owed.disk = 0, 0
		}
		others := owed.disk + owed.copies
		return a.roomOnDisk(offer, "", sum+others+copied-diskReserve,
			fmt.Sprintf(", %d MiB of them for a copy of its memory until all of that is here%s", copied>>20, capable.Beside(others)))
	}
	return nil
}

// roomOnDisk says whether so many bytes leave where that lies its reserve; words follow what is needed.
func (a *Agent) roomOnDisk(offer talk.Offer, what string, need int64, words string) error {
	free, ok, err := a.roomFor(what, need)
	if err != nil || ok {
		return err
	}
	return refuses(a.config.Host, offer, migration.CodeCapacity, "it has %d MiB of disk free in %s, %d MiB are needed%s; free some or choose another host",
		free>>20, a.placeOf(what), (need+diskReserve)>>20, words)
}

// copiedOf is the file that the destination keeps of what came of memory, in our own data path, until it has all; bytes.
// Pages of zeros take no room there.
func copiedOf(o talk.Offer) int64 {
	if !o.Plan.OwnPath() {
		return 0
	}
	return max(0, min(o.Touched, o.Facts.Memory))
}
