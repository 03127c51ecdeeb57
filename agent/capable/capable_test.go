package capable

import (
	"strings"
	"testing"

	"godwit/agent/agenttest"
	"godwit/migration"
	"godwit/vm"
)

func TestLacks(t *testing.T) {
	const mib = 1 << 20
	here := Host{Name: "rome", Version: "10.0.2", Accel: "tcg", Free: 1000 * mib, Reserve: 128 * mib, MTU: 1500}
	guest := func(version, accel, flags string, memory int64) Guest {
		return Guest{Name: "web", Facts: vm.Facts{Version: version, Accel: accel, Memory: memory}, Flags: flags}
	}
	with := func(change func(*Host)) Host { o := here; change(&o); return o }
	kvm := with(func(o *Host) { o.Accel, o.Flags = "kvm", "fpu sse avx" })
	unlike := func(model string, started bool) Guest {
		o := guest("10.0.2", "kvm", "fpu avx512f sse", mib)
		o.Facts.CPU, o.Started = model, started
		return o
	}
	told := func(flags string) Guest { // whose features are told, and will be compared in prepare
		o := guest("10.0.2", "kvm", flags, mib)
		o.Facts.CPU, o.Facts.Features = "host", &vm.Features{}
		return o
	}
	for _, c := range []struct {
		name  string
		here  Host
		guest Guest
		code  migration.Code
		words []string
	}{
		{"fits", here, guest("10.0.2", "tcg", "", 512*mib), "", nil},
		{"fits to the byte", here, guest("10.0.2", "tcg", "", 872*mib), "", nil},
		{"one byte too much", here, guest("10.0.2", "tcg", "", 872*mib+1), migration.CodeCapacity, []string{"host rome refuses guest web", "1000 MiB of memory free", "128 MiB stay in reserve"}},
		{"a large reserve", with(func(o *Host) { o.Reserve = 900 * mib }), guest("10.0.2", "tcg", "", 512*mib), migration.CodeCapacity, []string{"1412 MiB are needed"}},
		{"room in huge pages", with(func(o *Host) { o.Huge = 2000 * mib }), guest("10.0.2", "tcg", "", 2000*mib), "", nil},
		{"too few huge pages", with(func(o *Host) { o.Huge = 1998 * mib }), guest("10.0.2", "tcg", "", 2000*mib), migration.CodeCapacity, []string{"1000 MiB of memory free"}},
		{"memory unknown", with(func(o *Host) { o.Free = -1 }), guest("10.0.2", "tcg", "", 1<<40), "", nil},
		{"a newer QEMU there", with(func(o *Host) { o.Version = "10.1.0" }), guest("10.0.2", "tcg", "", mib), "", nil},
		{"an older QEMU there", with(func(o *Host) { o.Version = "7.2.19" }), guest("10.0.2", "tcg", "", mib), migration.CodeHypervisor, []string{"its QEMU 7.2.19 is older than the source's 10.0.2"}},
		{"an older minor there", here, guest("10.1.0", "tcg", "", mib), migration.CodeHypervisor, []string{"QEMU 10.0.2 is older than the source's 10.1.0"}},
		{"KVM to none", here, guest("10.0.2", "kvm", "", mib), migration.CodeHypervisor, []string{"under KVM"}},
		{"the same MTU", here, Guest{Name: "web", Facts: vm.Facts{Version: "10.0.2"}, MTU: 1500}, "", nil},
		{"another MTU", here, Guest{Name: "web", Facts: vm.Facts{Version: "10.0.2"}, MTU: 9000}, migration.CodeAddress, []string{"MTU is 1500 bytes and the source's 9000"}},
		{"the same processor", kvm, guest("10.0.2", "kvm", "fpu sse avx", mib), "", nil},
		{"a better processor", kvm, guest("10.0.2", "kvm", "fpu", mib), "", nil},
		{"a lesser processor", kvm, guest("10.0.2", "kvm", "fpu avx512f sse", mib), migration.CodeHypervisor, []string{"its CPU lacks avx512f", "choose another host"}},
		{"a lesser processor, and the guest has its host's", kvm, unlike("host", false), migration.CodeHypervisor, []string{"its CPU lacks avx512f"}},
		{"the same, by its other name, of an adopted guest", kvm, unlike("max", true), migration.CodeHypervisor, []string{"its CPU lacks avx512f", "CPU model that both have"}},
		{"the same processor, and another kernel", kvm, told("fpu sse avx pti ida split_lock_detect user_shstk"), "", nil},
		{"a lesser processor, and features are told", kvm, told("fpu avx512f sse pti"), migration.CodeHypervisor, []string{"its CPU lacks avx512f, and"}},
		{"another maker's", with(func(o *Host) { o.Accel, o.Flags = "kvm", "fpu sse avx svm" }), told("fpu sse avx vmx"), migration.CodeHypervisor, []string{"its CPU lacks vmx"}},
		{"less for guests of guests", with(func(o *Host) { o.Accel, o.Flags = "kvm", "fpu sse avx vmx ept" }), told("fpu sse avx vmx ept vpid ept_ad"), migration.CodeHypervisor, []string{"its CPU lacks vpid, ept_ad"}},
		{"the same processor, by an older source", kvm, guest("10.0.2", "kvm", "fpu sse pti", mib), migration.CodeHypervisor, []string{"its CPU lacks pti"}},
		{"a lesser processor, and the guest's is a model", kvm, unlike("Skylake-Server", true), "", nil},
	} {
		agenttest.Refused(t, c.name, c.here.Lacks(c.guest), c.code, c.words...)
	}
}

// TestLacksMemory: a host takes a guest that fits beside its reserve and what guests on their way fill, in free memory
// or in huge pages; what it does not know of itself keeps none away.
func TestLacksMemory(t *testing.T) {
	const gib = 1 << 30
	for _, c := range []struct {
		name                              string
		memory, free, reserve, owed, huge int64
		code                              migration.Code
		words                             []string
	}{
		{"it fits", 2 * gib, 4 * gib, gib, gib, 0, "", nil},
		{"one byte is missing", 2 * gib, 4*gib - 1, gib, gib, 0, migration.CodeCapacity, []string{"4095 MiB of memory free, 3072 MiB are needed beside 1024 MiB for guests on their way here"}},
		{"nobody is on the way", 2 * gib, gib, 0, 0, 0, migration.CodeCapacity, []string{"are needed (0 MiB stay"}},
		{"in huge pages", 2 * gib, gib, gib, 0, 2 * gib, "", nil},
		{"not in huge pages", 2 * gib, gib, gib, 0, 2*gib - 1, migration.CodeCapacity, []string{"free some"}},
		{"it does not know", 2 * gib, -1, gib, 0, 0, "", nil},
		{"nothing is free", 2 * gib, 0, gib, 0, 0, migration.CodeCapacity, []string{"0 MiB of memory free"}},
		{"less than nothing", -1, gib, 0, 0, 0, migration.CodeUsage, []string{"-1 bytes"}},
		{"more than there can be", mostMemory + 1, 1 << 62, 0, 0, 0, migration.CodeUsage, []string{"bytes of memory"}},
		{"as much as there can be", mostMemory, 1 << 62, 0, 0, 0, "", nil},
	} {
		h := Host{Name: "rome", Free: c.free, Reserve: c.reserve, Owed: c.owed, Huge: c.huge}
		agenttest.Refused(t, c.name, h.LacksMemory(Guest{Name: "web", Facts: vm.Facts{Memory: c.memory}}), c.code, c.words...)
	}
}

// TestRoomToSend: a source needs a fiftieth of the guest's memory beside it.
func TestRoomToSend(t *testing.T) {
	const gib = 1 << 30
	guest := vm.Facts{Memory: 256 * gib}
	if why := LacksRoomToSend(guest, 6*gib); why != "" {
		t.Errorf("with room: %s", why)
	}
	for _, guest.Apart = range []bool{false, true} {
		why := LacksRoomToSend(guest, 4*gib)
		if !strings.HasPrefix(why, "this host has 4096 MiB of memory free, and 5") || strings.HasSuffix(why, "qemu-multifd") == guest.Apart {
			t.Errorf("without: %q", why)
		}
	}
}

func TestOlder(t *testing.T) {
	for _, c := range []struct {
		a, b string
		want bool
	}{
		{"7.2.0", "10.0.0", true},
		{"10.0.0", "7.2.0", false},
		{"10.0.0", "10.0.0", false},
		{"10.0.0", "10.0.5", false}, // patch releases migrate to each other
		{"10.0", "10.1.0", true},
		{"10.10.0", "10.9.0", false},
		{"9.2.4 (Debian 1:9.2.4)", "10.0.0", true},
		{"10", "10.0.1", false},
		{"", "10.0.0", true},
	} {
		if got := older(c.a, c.b); got != c.want {
			t.Errorf("%q older than %q: %v", c.a, c.b, got)
		}
	}
}
