package agent

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"godwit/agent/care"
	"godwit/agent/config"
	"godwit/migration"
	"godwit/vm"
)

// refused checks that err is a problem of that code and one line with all words; no
// words: that there is none.
func refused(t *testing.T, name string, err error, code migration.Code, words ...string) {
	t.Helper()
	if len(words) == 0 {
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		return
	}
	var problem *migration.Problem
	if !errors.As(err, &problem) || problem.Code != code {
		t.Errorf("%s: %v: want a problem of code %s", name, err, code)
		return
	}
	for _, w := range words {
		if !strings.Contains(problem.Text, w) {
			t.Errorf("%s: %q: want %q in it", name, problem.Text, w)
		}
	}
	if strings.Contains(problem.Text, "\n") || strings.Contains(problem.Text, "%!") {
		t.Errorf("%s: %q: want one line of words", name, problem.Text)
	}
}

func TestLacks(t *testing.T) {
	const mib = 1 << 20
	here := offering{host: "rome", version: "10.0.2", accel: "tcg", free: 1000 * mib, reserve: 128 * mib, mtu: 1500}
	guest := func(version, accel, flags string, memory int64) Offer {
		return Offer{Plan: migration.Plan{Guest: "web"}, Facts: vm.Facts{Version: version, Accel: accel, Memory: memory}, CPUFlags: flags}
	}
	with := func(change func(*offering)) offering { o := here; change(&o); return o }
	kvm := with(func(o *offering) { o.accel, o.flags = "kvm", "fpu sse avx" })
	unlike := func(model string, start ...string) Offer {
		o := guest("10.0.2", "kvm", "fpu avx512f sse", mib)
		o.Facts.CPU, o.Description.Start = model, start
		return o
	}
	for _, c := range []struct {
		name  string
		here  offering
		offer Offer
		code  migration.Code
		words []string
	}{
		{"fits", here, guest("10.0.2", "tcg", "", 512*mib), "", nil},
		{"fits to the byte", here, guest("10.0.2", "tcg", "", 872*mib), "", nil},
		{"one byte too much", here, guest("10.0.2", "tcg", "", 872*mib+1), migration.CodeCapacity, []string{"host rome refuses guest web", "1000 MiB of memory free", "128 MiB stay in reserve"}},
		{"a large reserve", with(func(o *offering) { o.reserve = 900 * mib }), guest("10.0.2", "tcg", "", 512*mib), migration.CodeCapacity, []string{"1412 MiB are needed"}},
		{"room in huge pages", with(func(o *offering) { o.huge = 2000 * mib }), guest("10.0.2", "tcg", "", 2000*mib), "", nil},
		{"too few huge pages", with(func(o *offering) { o.huge = 1998 * mib }), guest("10.0.2", "tcg", "", 2000*mib), migration.CodeCapacity, []string{"1000 MiB of memory free"}},
		{"memory unknown", with(func(o *offering) { o.free = -1 }), guest("10.0.2", "tcg", "", 1<<40), "", nil},
		{"a newer QEMU there", with(func(o *offering) { o.version = "10.1.0" }), guest("10.0.2", "tcg", "", mib), "", nil},
		{"an older QEMU there", with(func(o *offering) { o.version = "7.2.19" }), guest("10.0.2", "tcg", "", mib), migration.CodeHypervisor, []string{"its QEMU 7.2.19 is older than the source's 10.0.2"}},
		{"an older minor there", here, guest("10.1.0", "tcg", "", mib), migration.CodeHypervisor, []string{"QEMU 10.0.2 is older than the source's 10.1.0"}},
		{"KVM to none", here, guest("10.0.2", "kvm", "", mib), migration.CodeHypervisor, []string{"under KVM"}},
		{"the same MTU", here, Offer{Plan: migration.Plan{Guest: "web"}, Facts: vm.Facts{Version: "10.0.2"}, MTU: 1500}, "", nil},
		{"another MTU", here, Offer{Plan: migration.Plan{Guest: "web"}, Facts: vm.Facts{Version: "10.0.2"}, MTU: 9000}, migration.CodeAddress, []string{"MTU is 1500 bytes and the source's 9000"}},
		{"the same processor", kvm, guest("10.0.2", "kvm", "fpu sse avx", mib), "", nil},
		{"a better processor", kvm, guest("10.0.2", "kvm", "fpu", mib), "", nil},
		{"a lesser processor", kvm, guest("10.0.2", "kvm", "fpu avx512f sse", mib), migration.CodeHypervisor, []string{"its CPU lacks avx512f", "choose another host"}},
		{"a lesser processor, and the guest has its host's", kvm, unlike("host"), migration.CodeHypervisor, []string{"its CPU lacks avx512f"}},
		{"the same, by its other name, of an adopted guest", kvm, unlike("max", "qemu"), migration.CodeHypervisor, []string{"its CPU lacks avx512f", "CPU model that both have"}},
		{"a lesser processor, and the guest's is a model", kvm, unlike("Skylake-Server", "qemu"), "", nil},
	} {
		refused(t, c.name, c.here.lacks(c.offer), c.code, c.words...)
	}
}

func TestUnfit(t *testing.T) {
	two, one := care.Held{Taps: []string{"a", "b"}}, care.Held{Taps: []string{"a"}}
	disk := care.Held{Taps: two.Taps, Description: config.Description{Disks: []vm.Disk{{ID: "root"}}}}
	facts := func(version, accel string, blockers ...string) vm.Facts {
		return vm.Facts{Version: version, Accel: accel, Blockers: blockers}
	}
	well := facts("10.0.2", "tcg")
	refuse := func(code migration.Code, format string, a ...any) error {
		return &migration.Problem{Code: code, Text: "migrate guest web: " + fmt.Sprintf(format, a...)}
	}
	for _, c := range []struct {
		name  string
		guest leaver
		code  migration.Code
		words []string
	}{
		{"well", leaver{two, true, false, well, vm.Running}, "", nil},
		{"QEMU 7.2 with KVM", leaver{two, true, false, facts("7.2.19", "kvm"), vm.Running}, "", nil},
		{"QEMU 7.2 with TCG", leaver{two, true, false, facts("7.2.19", "tcg"), vm.Running}, migration.CodeHypervisor, []string{"QEMU 7.2.19 corrupts", "QEMU 10 or newer", "KVM"}},
		{"QEMU 9.2 with TCG", leaver{two, true, false, facts("9.2.0", "tcg"), vm.Running}, migration.CodeHypervisor, []string{"QEMU 9.2.0"}},
		{"paused", leaver{two, true, false, well, vm.Paused}, migration.CodeGuest, []string{"it is paused"}},
		{"blocked", leaver{two, true, true, facts("10.0.2", "tcg", "a device\nof two lines", "another"), vm.Running}, migration.CodeHypervisor, []string{"a device of two lines; another"}},
		{"one NIC", leaver{one, true, false, well, vm.Running}, migration.CodeGuest, []string{"no second NIC", "--network tunnel"}},
		{"one NIC, keeps its address", leaver{one, true, true, well, vm.Running}, "", nil},
		{"no channel", leaver{two, false, false, well, vm.Running}, migration.CodeGuest, []string{"no guest channel", "--network tunnel"}},
		{"no channel, keeps its address", leaver{two, false, true, well, vm.Running}, "", nil},
		{"a disk that QEMU has not", leaver{disk, true, false, well, vm.Running}, migration.CodeGuest, []string{"disk root"}},
	} {
		refused(t, c.name, c.guest.unfit(refuse), c.code, c.words...)
	}
}

// TestSameRoot: a guest of an image finds the same root at the destination, or does not
// come.
func TestSameRoot(t *testing.T) {
	file := func(text string) string {
		path := filepath.Join(t.TempDir(), "root")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	host := func(root string) *Agent {
		c := config.Config{Host: "sanjose", Images: map[string]config.Image{}}
		if root != "" {
			c.Images["debian12"] = config.Image{Kernel: "k", Root: root}
		}
		return &Agent{config: &c}
	}
	d := config.Description{Name: "web", Image: "debian12"}
	mark, err := host(file("made on Monday")).config.RootMark(d)
	if err != nil || mark == "" {
		t.Fatalf("mark %q, %v", mark, err)
	}
	offer := Offer{Description: d, Root: mark}
	if err := host(file("made on Monday")).sameRoot(offer); err != nil {
		t.Errorf("the same root by another name: %v", err)
	}
	for want, a := range map[string]*Agent{
		"is not the source's":      host(file("made on Friday")),
		"root of image debian12":   host(file("made on Monday!")),
		"it has no image debian12": host(""),
		"no such file":             host("/nonexistent/root"),
	} {
		if err := a.sameRoot(offer); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
	tiny := config.Description{Name: "web"}
	if mark, err := host("").config.RootMark(tiny); mark != "" || err != nil {
		t.Errorf("a guest without a root: %q, %v", mark, err)
	}
	if err := host("").sameRoot(Offer{Description: tiny}); err != nil {
		t.Error(err)
	}
}

// TestRoomToSend: a source needs a fiftieth of the guest's memory beside it.
func TestRoomToSend(t *testing.T) {
	const gib = 1 << 30
	if why := lacksRoomToSend(256*gib, 6*gib); why != "" {
		t.Errorf("with room: %s", why)
	}
	if why := lacksRoomToSend(256*gib, 4*gib); !strings.HasPrefix(why, "this host has 4096 MiB of memory free, and 5") {
		t.Errorf("without: %q", why)
	}
}

// TestUnknownSource: a host that its destination's configuration does not name hears so in the check, and not from its tunnel.
func TestUnknownSource(t *testing.T) {
	a := between(t)
	p := goodPreparation()
	p.Plan.From = "berlin"
	refused(t, "not known", a.capable(t.Context(), Offer{Plan: p.Plan, Description: p.Description}), migration.CodePeer, "host rome refuses guest web: its configuration knows no host berlin; add it to peers")
}

// TestNoBridge: a host whose bridge or its port is not there takes no guest, as its log says, and says by which key.
func TestNoBridge(t *testing.T) {
	a := between(t)
	a.config.Network.Bridge, a.config.Network.LAN = "no-bridge", "lo"
	p := goodPreparation()
	refused(t, "no bridge", a.capable(t.Context(), Offer{Plan: p.Plan, Description: p.Description}), migration.CodePath, "host rome refuses guest web", "network.bridge no-bridge: no such device; mend that")
}

// TestUnwritableDestination: a host that cannot write anything down takes no guest, and says what to do.
func TestUnwritableDestination(t *testing.T) {
	before := unwritable
	defer func() { unwritable = before }()
	unwritable = func(*config.Config) []string {
		return []string{"state /s: its file system can only be read; mount it for writing"}
	}
	a := between(t)
	p := goodPreparation()
	refused(t, "read-only", a.capable(t.Context(), Offer{Plan: p.Plan, Description: p.Description}), migration.CodeCapacity, "host rome refuses guest web", "can only be read; mount it for writing")
}
