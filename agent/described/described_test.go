package described

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"godwit/agent/care"
	"godwit/agent/config"
	"godwit/vm"
	"godwit/vm/qemu"
)

// refused checks that err says word; "": that there is none.
func refused(t *testing.T, name string, err error, word string) {
	t.Helper()
	if (err == nil) != (word == "") || err != nil && !strings.Contains(err.Error(), word) {
		t.Errorf("%s: %v, want %q", name, err, word)
	}
}

// TestUsable: a NIC of more than one pair of queues would not arrive.
func TestUsable(t *testing.T) {
	n := config.NIC{MAC: "52:54:00:00:01:0a", Tap: "tap0"}
	card := func(tap string, queues int) []qemu.Card {
		var c qemu.Card
		c.MAC, c.Tap, c.Queues = n.MAC, tap, queues
		return []qemu.Card{c}
	}
	refused(t, "one pair", usable(n, card("tap0", 1)), "")
	refused(t, "QEMU does not say", usable(n, card("", 0)), "")
	refused(t, "another tap", usable(n, card("tap1", 1)), "connected to tap tap1, the description says tap0")
	refused(t, "four pairs", usable(n, card("tap0", 4)), "has 4 pairs of queues, and one with more than one cannot be moved; start it with queues=1")
	refused(t, "none", usable(n, nil), "no NIC with the MAC 52:54:00:00:01:0a (it has: none)")
	refused(t, "others", usable(n, []qemu.Card{{MAC: "52:54:00:00:02:0a"}, {MAC: "52:54:00:00:02:0b"}}), "(it has: 52:54:00:00:02:0a, 52:54:00:00:02:0b)")
}

// TestUnlikeDescription: what a description has otherwise than QEMU is told as the guest is adopted, disks too, and not
// as it is to move.
func TestUnlikeDescription(t *testing.T) {
	nics := []config.NIC{{MAC: "52:54:00:00:01:0a", Tap: "tap0"}}
	root, seed := vm.Disk{ID: "root", Size: 1 << 30}, vm.Disk{ID: "seed", Path: "/srv/seed.iso", Size: 1 << 20}
	facts := vm.Facts{Base: 128 << 20, VCPUs: 2, Disks: []vm.Disk{root}}
	d := config.Description{Memory: 128 << 20, NICs: nics, Disks: []vm.Disk{{ID: "root"}}}
	for want, change := range map[string]func(d *config.Description, f *vm.Facts){
		"": func(*config.Description, *vm.Facts) {},
		"has 134217728 bytes of memory, the description says 1024; write 128MiB":                       func(d *config.Description, _ *vm.Facts) { d.Memory = 1 << 10 },
		"has 2 processors, the description says 1":                                                     func(d *config.Description, _ *vm.Facts) { d.VCPUs = 1 },
		"has 1 NICs, the description names 0":                                                          func(d *config.Description, _ *vm.Facts) { d.NICs = nil },
		"has no disk boot that its description names":                                                  func(d *config.Description, _ *vm.Facts) { d.Disks = []vm.Disk{{ID: "boot"}} },
		"has a disk seed (/srv/seed.iso) that its description does not name; name it, or take it away": func(_ *config.Description, f *vm.Facts) { f.Disks = []vm.Disk{root, seed} },
	} {
		d, facts := d, facts
		change(&d, &facts)
		refused(t, want, unlike(d, facts, make([]qemu.Card, 1)), want)
	}
}

// TestUnlikeDisk: so is a disk's file that is another one. By it a source knows which file to remove when the guest has
// left.
func TestUnlikeDisk(t *testing.T) {
	dir := t.TempDir()
	root, other, link := filepath.Join(dir, "root.raw"), filepath.Join(dir, "other.raw"), filepath.Join(dir, "link")
	if err := errors.Join(os.WriteFile(root, nil, 0o600), os.WriteFile(other, nil, 0o600), os.Symlink(root, link)); err != nil {
		t.Fatal(err)
	}
	another := func(described string) string {
		return "its disk root is " + root + ", the description says " + described
	}
	for name, c := range map[string]struct{ described, has, want string }{
		"the same":              {root, root, ""},
		"by a link":             {link, root, ""},
		"not named":             {"", root, ""},
		"another":               {other, root, another(other)},
		"none":                  {filepath.Join(dir, "rot.raw"), root, another(filepath.Join(dir, "rot.raw"))},
		"no absolute path":      {"root.raw", root, another("root.raw")},
		"by QEMU's own folder":  {root, "root.raw", ""},
		"among options":         {root, `json:{"driver": "raw", "file": {"driver": "rbd", "pool": "p", "image": "i"}}`, ""},
		"not seen by the agent": {other, filepath.Join(dir, "elsewhere.raw"), ""},
	} {
		d := config.Description{Memory: 128 << 20, Disks: []vm.Disk{{ID: "root", Path: c.described}}}
		refused(t, name, unlike(d, vm.Facts{Base: 128 << 20, Disks: []vm.Disk{{ID: "root", Path: c.has, Size: 1 << 30}}}, nil), c.want)
	}
}

// TestSameCards: a guest is gone for sure only where another one is seen on its socket.
func TestSameCards(t *testing.T) {
	const a, b = "52:54:00:00:01:0a", "52:54:00:00:01:0b"
	d := config.Description{QMP: "/run/web.sock", NICs: []config.NIC{{MAC: a}, {MAC: b}}}
	for name, c := range map[string]struct {
		cards []qemu.Card
		same  bool
		gone  bool
	}{
		"both":                       {[]qemu.Card{{MAC: b}, {MAC: a}}, true, false},
		"in capitals":                {[]qemu.Card{{MAC: "52:54:00:00:01:0A"}}, true, false},
		"its owner took one away":    {[]qemu.Card{{MAC: b}}, true, false},
		"its owner took all of them": {nil, false, false},
		"another guest":              {[]qemu.Card{{MAC: "52:54:00:00:02:0a"}}, false, true},
	} {
		if err := sameCards(d, c.cards); (err == nil) != c.same || errors.Is(err, qemu.ErrGone) != c.gone {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestMemoryOfAStartCommand: QEMU takes any memory of whole pages, and its guest comes to no other than that.
func TestMemoryOfAStartCommand(t *testing.T) {
	d := config.Description{Name: "web", Memory: 128<<20 + 8<<10, Start: []string{"sh", "-c", "echo it has $0 >&2; exit 1", "{memory}"}}
	_, err := Start(t.Context(), care.Held{Description: d, Dir: t.TempDir()}, nil)
	if err == nil || !strings.Contains(err.Error(), "it has 131080K") {
		t.Error(err)
	}
}
