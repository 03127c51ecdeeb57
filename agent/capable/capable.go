// Package capable compares a guest that is to move with the hosts that it is to move between: what bars it from leaving
// one, and what the other has not that it needs there. Who is refused hears why, and what a person can do.
//
// What it compares was seen by others, or told by another host, which is not believed in everything: sizes are bytes,
// and bounded. Only look.go looks at this host itself. Whether there is room on its disks, and for its addresses, is
// not known here.
package capable

import (
	"fmt"
	"strconv"
	"strings"

	"godwit/migration"
	"godwit/transfer/pages"
	"godwit/vm"
)

// Guest is one that is to come, by the words of the host where it runs.
type Guest struct {
	Name    string
	Facts   vm.Facts
	Flags   string // of that host's processor, where it is the guest's own; see Flags
	MTU     int    // of guests there, bytes; 0: it does not say
	Started bool   // by a command of its own, in which a person chose its processor
}

// Host is what a host has for a guest that is to come.
type Host struct {
	Name    string
	Version string // of QEMU
	Accel   string // kvm or tcg
	Flags   string // of the processor; see Flags
	Free    int64  // bytes of memory; below 0: unknown
	Owed    int64  // bytes of it that guests on their way here will fill
	Huge    int64  // bytes of free pages of the size that the guest's memory is on, where that is a huge one
	Reserve int64  // bytes of it that must stay free
	MTU     int    // of guests, bytes
}

// mostMemory bounds what a guest is believed to have, bytes.
const mostMemory = 1 << 46

// Lacks says what the offered guest needs and this host has not.
func (h Host) Lacks(guest Guest) error {
	facts := guest.Facts
	if err := h.LacksMemory(guest); err != nil {
		return err
	}
	if older(h.Version, facts.Version) {
		return Refuses(h.Name, guest.Name, migration.CodeHypervisor, "its QEMU %s is older than the source's %s; upgrade it", h.Version, facts.Version)
	}
	if facts.Accel == "kvm" && h.Accel != "kvm" {
		return Refuses(h.Name, guest.Name, migration.CodeHypervisor, "the guest runs under KVM and this host has none; choose another host")
	}
	if guest.MTU != 0 && guest.MTU != h.MTU {
		return Refuses(h.Name, guest.Name, migration.CodeAddress, "its guests' MTU is %d bytes and the source's %d (network.mtu): full packets of open connections would not pass; give both the same", h.MTU, guest.MTU)
	}
	return h.lacksFlags(guest)
}

// LacksMemory is Lacks for memory alone: guests that come meanwhile may take what was free.
func (h Host) LacksMemory(guest Guest) error {
	memory := guest.Facts.Memory
	if memory < 0 || memory > mostMemory {
		return Refuses(h.Name, guest.Name, migration.CodeUsage, "it is said to have %d bytes of memory", memory)
	}
	if need := memory + h.Reserve; h.Free >= 0 && h.Free < need+h.Owed && h.Huge < memory {
		return Refuses(h.Name, guest.Name, migration.CodeCapacity, "it has %d MiB of memory free, %d MiB are needed%s (%d MiB stay in reserve); free some or choose another host",
			h.Free>>20, need>>20, Beside(h.Owed), h.Reserve>>20)
	}
	return nil
}

// Beside are the words for so many bytes that guests on their way here will fill; none for less than a MiB.
func Beside(owed int64) string {
	if owed < 1<<20 {
		return ""
	}
	return fmt.Sprintf(" beside %d MiB for guests on their way here", owed>>20)
}

// Refuses is the answer of a host that does not take a guest.
func Refuses(host, guest string, code migration.Code, format string, args ...any) error {
	return &migration.Problem{Code: code, Text: fmt.Sprintf("host %s refuses guest %s: ", host, guest) + fmt.Sprintf(format, args...)}
}

// older compares QEMU versions by their first two numbers.
func older(a, b string) bool {
	parse := func(s string) (int, int) {
		parts := strings.SplitN(s, ".", 3)
		x, _ := strconv.Atoi(parts[0])
		y := 0
		if len(parts) > 1 {
			y, _ = strconv.Atoi(parts[1])
		}
		return x, y
	}
	a1, a2 := parse(a)
	b1, b2 := parse(b)
	return a1 < b1 || a1 == b1 && a2 < b2
}

// LacksRoomToSend says why a source has not the memory in which our own data path keeps what it knows of each page; ""
// if it has. Without it the kernel would end some process for the migration, maybe the guest's QEMU.
func LacksRoomToSend(facts vm.Facts, free int64) string {
	need := NeededToSend(facts.Memory)
	if free >= need {
		return ""
	}
	return fmt.Sprintf("this host has %d MiB of memory free, and %d MiB are needed here to send the guest's %d MiB; free some, or use --mode precopy --transfer %s",
		free>>20, need>>20, facts.Memory>>20, QEMUTransfer(facts))
}

// NeededToSend is how much memory a source takes for what it knows of each page of a guest's, bytes.
func NeededToSend(memory int64) int64 {
	return int64(pages.Need(uint64(max(memory, 0)) / pages.Size)) //nolint:gosec // some fiftieth of it
}
