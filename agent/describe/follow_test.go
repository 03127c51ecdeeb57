package describe

import (
	"slices"
	"strings"
	"testing"

	"godwit/vm"
	"godwit/vm/qemu"
)

// TestAllThatItLacks: what a guest lacks for its connections to follow it is told at once, and what was not asked.
func TestAllThatItLacks(t *testing.T) {
	const channel, nic = "For its connections to follow it needs one: -device virtio-serial-pci, ", "For its connections to follow it needs a second: -netdev tap and "
	const port = " -chardev socket,id=c,path=/run/web/guest.sock,server=on -device virtserialport,chardev=c,name=org.godwit.guest.0"
	for name, c := range map[string]struct {
		words, network string
		cards          int
		connected      string // the port's
		want           []string
	}{
		"neither":    {"", "tunnel", 1, "", []string{channel, nic}},
		"no channel": {"", "tunnel", 2, "", []string{channel}},
		"one NIC":    {port, "tunnel", 1, "unix:/run/web/guest.sock,server=on", []string{nic}},
		"both":       {port, "", 2, "disconnected:unix:/run/web/guest.sock,server=on", nil},
		"a client's": {port, "tunnel", 2, "unix:/run/web/guest.sock", []string{channel, "its port org.godwit.guest.0 is connected to unix:/run/web/guest.sock, which is no unix socket that waits"}},
		"a file": {" -chardev file,id=f,path=/x -device virtserialport,chardev=f,name=org.qemu.guest_agent.0", "tunnel", 2, "", []string{
			channel, "its port org.qemu.guest_agent.0 is connected to file,id=f,path=/x, which is no unix socket that waits"}},
		"nothing": {" -device virtserialport,name=org.godwit.guest.0", "tunnel", 2, "", []string{channel, "is connected to nothing that is known"}},
	} {
		r := running(strings.Fields("-netdev tap,id=net0,fd=5 -netdev tap,id=net1,fd=6" + c.words)...)
		r.Chardevs = map[string]string{"c": c.connected}
		r.Cards = append(r.Cards, qemu.Card{MAC: "52:54:00:00:01:0b", Netdev: "net1"})[:c.cards]
		found, err := Of(r)
		if err != nil {
			t.Fatal(err)
		}
		looks := strings.Join(found.Look, "\n")
		for _, want := range append(c.want, "not asked: MPTCP in the guest, in its servers and in its clients") {
			if !strings.Contains(looks, want) {
				t.Errorf("%s: nobody is told of %q:\n%s", name, want, looks)
			}
		}
		for _, other := range []string{channel, nic, "is connected to"} {
			if strings.Contains(looks, other) && !slices.ContainsFunc(c.want, func(want string) bool { return strings.Contains(want, other) }) {
				t.Errorf("%s: told of %q:\n%s", name, other, looks)
			}
		}
		if found.Description.Network != c.network {
			t.Errorf("%s: network %q", name, found.Description.Network)
		}
		loads(t, found)
	}
}

// TestWhatDestinationsNeed: a processor that is the host's own, and room for disks that are smaller here.
func TestWhatDestinationsNeed(t *testing.T) {
	for name, c := range map[string]struct {
		accel, cpu, format string
		want               []string
	}{
		"host":  {"kvm", "host", "raw", []string{"own processor (-cpu host): each destination's must do all"}},
		"max":   {"kvm", "max", "raw", []string{"own processor (-cpu max): "}},
		"qcow2": {"kvm", "Skylake-Server", "qcow2", []string{"disks[0]: it is qcow2 here, and raw at each destination, which needs 21 GiB for it, free in its STATE/disks"}},
		"TCG":   {"tcg", "max", "raw", nil},
	} {
		r := running(strings.Fields("-netdev tap,id=net0,fd=5 -drive file=/srv/web,if=none,id=root")...)
		r.Facts.Accel, r.Facts.CPU, r.Facts.Disks = c.accel, c.cpu, []vm.Disk{{ID: "root", Path: "/srv/web", Format: c.format, Size: 20<<30 + 1}}
		found, err := Of(r)
		if err != nil {
			t.Fatal(err)
		}
		var told []string
		for _, line := range found.Look {
			if strings.Contains(line, "each destination") {
				told = append(told, line)
			}
		}
		if len(told) != len(c.want) || len(told) > 0 && !strings.Contains(told[0], c.want[0]) {
			t.Errorf("%s: %q, want %q", name, told, c.want)
		}
	}
}
