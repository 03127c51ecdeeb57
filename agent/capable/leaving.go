package capable

import (
	"fmt"
	"strings"

	"godwit/agent/care"
	"godwit/internal/oneline"
	"godwit/migration"
	"godwit/transfer/pages"
	"godwit/vm"
)

// Refuse is the error of who asks, for that reason.
type Refuse func(code migration.Code, format string, args ...any) error

// Leaver is a guest that is to leave here: its description, and what its hypervisor told.
type Leaver struct {
	Held    care.Held
	Channel bool // to a helper inside
	Keeps   bool // its address
	Facts   vm.Facts
	Status  vm.Status
}

// Unfit says why the guest cannot leave; nil if it can.
func (l Leaver) Unfit(refuse Refuse) error {
	held, facts := l.Held, l.Facts
	switch {
	case l.Status != vm.Running:
		return refuse(migration.CodeGuest, "it is %s; start it or resume it first", l.Status)
	case len(facts.Blockers) > 0:
		return refuse(migration.CodeHypervisor, "QEMU cannot migrate it: %s; take that device away, or make it one that can migrate",
			oneline.Of(strings.Join(strings.Fields(strings.Join(facts.Blockers, "; ")), " ")))
	case len(facts.Closed) > 0:
		return refuse(migration.CodeHypervisor, "its QEMU opens each disk by -drive again as the guest leaves, and cannot: %s; "+
			"let it find that file by this name and its user read it, or start it with the whole path", oneline.Of(strings.Join(facts.Closed, "; ")))
	case len(facts.Shared) > 0 && held.Description.QMP != "": // where it came to, it has them alone
		return refuse(migration.CodeGuest, "others may write its disk %s, too (share-rw=on), and what they write does not go along; "+
			"start it without that, where nobody else has the disk", strings.Join(facts.Shared, ", "))
	case facts.Accel == "tcg" && older(facts.Version, "10"):
		return refuse(migration.CodeHypervisor, "QEMU %s corrupts the memory of a migrated TCG guest; use QEMU 10 or newer (on Debian 12 from backports), or KVM", facts.Version)
	case len(held.Taps) < 2 && !l.Keeps:
		return refuse(migration.CodeGuest, "it has no second NIC for the next address; add one, or keep the address with --network tunnel")
	case !l.Channel && !l.Keeps:
		return refuse(migration.CodeGuest, "it has no guest channel to set the next address; add one, or keep the address with --network tunnel")
	case held.Description.Silent() && held.Kept().IsValid():
		return refuse(migration.CodeGuest, "its other NIC still has %s, which nobody in the guest could move; wait until that lease has ended (`godwit guest show %s`)", held.Kept(), held.Description.Name)
	case held.Description.QMP != "" && len(held.Description.Start) == 0:
		return refuse(migration.CodeGuest, "its description has no start command; write one, so that it can be received elsewhere, then `godwit guest forget` and adopt it again")
	}
	return UnfitDisks(refuse, held.Description.Disks, facts.Disks)
}

// onHugePages says whether a guest's memory, or some of it, is on pages larger than ours. QEMU
// takes post-copy only by its own pages ("Postcopy needs matching RAM page sizes").
func onHugePages(facts vm.Facts) bool { return facts.PageSize > pages.Size }

// CannotFollow says why the rest of a guest's memory cannot follow it; "" if it can.
func CannotFollow(facts vm.Facts) string {
	switch {
	case onHugePages(facts):
		return fmt.Sprintf("its memory is on pages of %d KiB, and the rest of such cannot follow it", facts.PageSize>>10)
	case facts.Hints: // QEMU hints only where it is not itself to hand over early (virtio_balloon_free_page_hint_notify)
		return "its balloon tells QEMU which pages are free (free-page-hint), which are never sent, and a guest that touches one would stand still"
	}
	return ""
}

// UnfitPages says why memory cannot follow a guest, where that was asked for.
func UnfitPages(refuse Refuse, mode string, facts vm.Facts) error {
	if cannot := CannotFollow(facts); cannot != "" && (mode == "hybrid" || mode == "postcopy") {
		return refuse(migration.CodeHypervisor, "mode %s: %s; use --mode precopy, or start it without", mode, cannot)
	}
	return nil
}

// QEMUTransfer is the best of QEMU's own transfers. Several channels it opens itself, where it can.
func QEMUTransfer(facts vm.Facts) string {
	if facts.Apart {
		return "qemu-tcp"
	}
	return "qemu-multifd"
}

// UnfitTransfer says why memory cannot leave by the transfer that was asked for.
func UnfitTransfer(refuse Refuse, plan migration.Plan, facts vm.Facts) error {
	if facts.Apart && plan.Transfer == "qemu-multifd" && !plan.Direct() {
		return refuse(migration.CodeHypervisor, "its QEMU is not the agent's (of another user, confined by AppArmor, or by -chroot), and cannot open the channels of qemu-multifd; use --transfer auto or qemu-tcp")
	}
	return nil
}
