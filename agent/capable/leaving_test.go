package capable

import (
	"fmt"
	"net/netip"
	"testing"

	"godwit/agent/agenttest"
	"godwit/agent/care"
	"godwit/agent/config"
	"godwit/migration"
	"godwit/vm"
)

func TestUnfit(t *testing.T) {
	two, one := care.Held{Taps: []string{"a", "b"}}, care.Held{Taps: []string{"a"}}
	disk := care.Held{Taps: two.Taps, Description: config.Description{Disks: []vm.Disk{{ID: "root"}}}}
	facts := func(version, accel string, blockers ...string) vm.Facts {
		return vm.Facts{Version: version, Accel: accel, Blockers: blockers}
	}
	well := facts("10.0.2", "tcg")
	leased := care.Held{Taps: two.Taps, Description: config.Description{Agent: config.AgentDHCP}}
	waits := leased
	waits.Addresses = []migration.Address{{Prefix: netip.MustParsePrefix("10.2.1.20/24"), Handover: "m-00000001"}, {Prefix: netip.MustParsePrefix("10.1.1.20/24"), Home: "paris"}}
	speaks := waits
	speaks.Description.Agent = ""
	adopted := care.Held{Taps: two.Taps, Description: config.Description{QMP: "/run/qmp"}}
	again := adopted
	again.Description.Start = []string{"qemu"}
	sized := func(sizes ...int64) vm.Facts {
		f := well
		for i, size := range sizes {
			f.Disks = append(f.Disks, vm.Disk{ID: []string{"root", "data"}[i], Path: "/d", Size: size})
		}
		return f
	}
	refuse := func(code migration.Code, format string, a ...any) error {
		return &migration.Problem{Code: code, Text: "migrate guest web: " + fmt.Sprintf(format, a...)}
	}
	for _, c := range []struct {
		name  string
		guest Leaver
		code  migration.Code
		words []string
	}{
		{"well", Leaver{two, true, false, well, vm.Running}, "", nil},
		{"QEMU 7.2 with KVM", Leaver{two, true, false, facts("7.2.19", "kvm"), vm.Running}, "", nil},
		{"QEMU 7.2 with TCG", Leaver{two, true, false, facts("7.2.19", "tcg"), vm.Running}, migration.CodeHypervisor, []string{"QEMU 7.2.19 corrupts", "QEMU 10 or newer", "KVM"}},
		{"QEMU 9.2 with TCG", Leaver{two, true, false, facts("9.2.0", "tcg"), vm.Running}, migration.CodeHypervisor, []string{"QEMU 9.2.0"}},
		{"paused", Leaver{two, true, false, well, vm.Paused}, migration.CodeGuest, []string{"it is paused"}},
		{"blocked", Leaver{two, true, true, facts("10.0.2", "tcg", "a device\nof two lines", "another"), vm.Running}, migration.CodeHypervisor, []string{"a device of two lines; another"}},
		{"a disk that its QEMU cannot open again", Leaver{two, true, true, vm.Facts{Version: "10.0.2", Accel: "tcg", Closed: []string{"disk hd0: Could not open 'root.img': No such file or directory"}}, vm.Running},
			migration.CodeHypervisor, []string{"disk hd0: Could not open 'root.img'", "whole path"}},
		{"a disk that others write", Leaver{again, true, true, vm.Facts{Accel: "kvm", Shared: []string{"data", "more"}}, vm.Running}, migration.CodeGuest, []string{"its disk data, more, too", "start it without"}},
		{"one that it has alone since it came", Leaver{two, true, true, vm.Facts{Accel: "kvm", Shared: []string{"data"}}, vm.Running}, "", nil},
		{"one NIC", Leaver{one, true, false, well, vm.Running}, migration.CodeGuest, []string{"no second NIC", "--network tunnel"}},
		{"one NIC, keeps its address", Leaver{one, true, true, well, vm.Running}, "", nil},
		{"no channel", Leaver{two, false, false, well, vm.Running}, migration.CodeGuest, []string{"no guest channel", "--network tunnel"}},
		{"no channel, keeps its address", Leaver{two, false, true, well, vm.Running}, "", nil},
		{"by DHCP", Leaver{leased, true, false, well, vm.Running}, "", nil},
		{"by DHCP, and its other NIC has the last one still", Leaver{waits, true, false, well, vm.Running}, migration.CodeGuest, []string{"10.1.1.20", "wait until that lease has ended"}},
		{"its other NIC has the last one, and it can be asked", Leaver{speaks, true, false, well, vm.Running}, "", nil},
		{"adopted, and nobody knows how to start it", Leaver{adopted, true, false, well, vm.Running}, migration.CodeGuest, []string{"no start command"}},
		{"adopted", Leaver{again, true, false, well, vm.Running}, "", nil},
		{"its disk", Leaver{disk, true, false, sized(1), vm.Running}, "", nil},
		{"a large one", Leaver{disk, true, false, sized(mostDisk), vm.Running}, "", nil},
		{"one that is too large", Leaver{disk, true, false, sized(mostDisk + 1), vm.Running}, migration.CodeGuest, []string{"its disk root"}},
		{"one of nothing", Leaver{disk, true, false, sized(0), vm.Running}, migration.CodeGuest, []string{"its disk root has 0 bytes"}},
		{"one that nobody names", Leaver{disk, true, false, sized(1, 1), vm.Running}, migration.CodeGuest, []string{"a disk data"}},
		{"a disk that QEMU has not", Leaver{disk, true, false, well, vm.Running}, migration.CodeGuest, []string{"disk root"}},
	} {
		agenttest.Refused(t, c.name, c.guest.Unfit(refuse), c.code, c.words...)
	}
}

// TestUnfitPages: memory on huge pages, or with a balloon that hints, does not follow a guest, and goes before it.
func TestUnfitPages(t *testing.T) {
	refuse := func(code migration.Code, format string, args ...any) error {
		return &migration.Problem{Code: code, Text: fmt.Sprintf(format, args...)}
	}
	for _, mode := range []string{"hybrid", "postcopy"} {
		agenttest.Refused(t, mode, UnfitPages(refuse, mode, vm.Facts{PageSize: 2 << 20}), migration.CodeHypervisor, "mode "+mode, "pages of 2048 KiB", "--mode precopy")
		agenttest.Refused(t, mode+" of ordinary pages", UnfitPages(refuse, mode, vm.Facts{PageSize: 4096}), "")
	}
	agenttest.Refused(t, "precopy", UnfitPages(refuse, "precopy", vm.Facts{PageSize: 2 << 20}), "")
	agenttest.Refused(t, "a balloon that hints", UnfitPages(refuse, "hybrid", vm.Facts{Hints: true}), migration.CodeHypervisor, "free-page-hint", "--mode precopy")
}

// TestUnfitTransfer: a QEMU that cannot open what the agent names has memory leave by one stream, which it is given.
func TestUnfitTransfer(t *testing.T) {
	refuse := func(code migration.Code, format string, args ...any) error {
		return &migration.Problem{Code: code, Text: fmt.Sprintf(format, args...)}
	}
	ours, theirs := vm.Facts{}, vm.Facts{Apart: true}
	for _, c := range []struct {
		name  string
		plan  migration.Plan
		facts vm.Facts
		code  migration.Code
		words []string
	}{
		{"several channels", migration.Plan{Transfer: "qemu-multifd"}, theirs, migration.CodeHypervisor, []string{"cannot open the channels", "--transfer auto or qemu-tcp"}},
		{"several of our own QEMU's", migration.Plan{Transfer: "qemu-multifd"}, ours, "", nil},
		{"several to the destination itself", migration.Plan{Transfer: "qemu-multifd", Insecure: true}, theirs, "", nil},
		{"one channel", migration.Plan{Transfer: QEMUTransfer(theirs)}, theirs, "", nil},
		{"our own data path", migration.Plan{Transfer: "lanes"}, theirs, "", nil},
	} {
		agenttest.Refused(t, c.name, UnfitTransfer(refuse, c.plan, c.facts), c.code, c.words...)
	}
}
