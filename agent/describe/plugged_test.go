package describe

import (
	"strings"
	"testing"

	"godwit/vm/qemu"
)

// TestPlugged: devices are told of that were plugged in or unplugged since the start, and no others.
func TestPlugged(t *testing.T) {
	named := func(id, kind string) qemu.Device {
		return qemu.Device{Path: "/machine/peripheral/" + id, ID: id, Type: kind}
	}
	unnamed := func(kind string) qemu.Device {
		return qemu.Device{Path: "/machine/peripheral-anon/device[0]", Type: kind}
	}
	card, plain := named("nic0", "virtio-net-pci"), "-device virtio-net-pci,id=nic0,netdev=net0"
	for name, c := range map[string]struct {
		words      string
		devices    []qemu.Device
		more, gone string // "": not told of
	}{
		"as it was started": {plain + ` -device {"driver":"usb-tablet","id":"t"} -device virtio-rng`, []qemu.Device{named("t", "usb-tablet"), card, unnamed("virtio-rng-pci")}, "", ""},
		"by other options":  {plain + " -drive file=a,if=virtio -virtfs local,path=/a -drive file=b", []qemu.Device{card, unnamed("virtio-blk-pci"), unnamed("virtio-9p-pci")}, "", ""},
		"a debug console":   {plain + " -debugcon file:/d", []qemu.Device{card, named("debugcon", "isa-debugcon")}, "", ""},
		"plugged in": {plain + " -device usb-kbd", []qemu.Device{card, named("hub", "usb-hub"), named("dimm1", "pc-dimm"), unnamed("usb-kbd"), unnamed("usb-kbd")},
			"hub (usb-hub), dimm1 (pc-dimm), 1 without an id", ""},
		"unplugged":                 {plain + " -device usb-tablet,id=t -device usb-kbd", []qemu.Device{card}, "", "t, 1 without an id"},
		"one for another":           {plain + " -device usb-tablet,id=t", []qemu.Device{card, named("k", "usb-kbd")}, "k (usb-kbd)", "t"},
		"processors":                {plain + " -device qemu64-x86_64-cpu,socket-id=1", []qemu.Device{card, named("c", "qemu64-x86_64-cpu"), unnamed("qemu64-x86_64-cpu"), unnamed("qemu64-x86_64-cpu")}, "", ""},
		"a NIC, told of by nics":    {plain, []qemu.Device{card, named("nic1", "virtio-net-pci")}, "", ""},
		"a NIC without an id":       {plain, []qemu.Device{card, unnamed("virtio-net-pci")}, "", ""},
		"a NIC that waits its turn": {plain + " -device e1000e,failover_pair_id=nic0,id=g", []qemu.Device{card}, "", ""},
		"not asked":                 {plain, nil, "", ""},
	} {
		r := running(strings.Fields("-netdev tap,id=net0,fd=5 " + c.words)...)
		r.Cards[0].Path, r.Devices = card.Path, c.devices
		if strings.HasPrefix(name, "a NIC") && len(c.devices) > 1 {
			r.Cards = append(r.Cards, qemu.Card{Path: c.devices[1].Path, MAC: "52:54:00:00:01:0b", Netdev: "net1"})
		}
		got := looks(t, r)
		for told, what := range map[string]string{"\nplugged in later: ": c.more, "\nunplugged: ": c.gone} {
			if what == "" && strings.Contains("\n"+got, told) || what != "" && !strings.Contains("\n"+got, told+what+";") {
				t.Errorf("%s: want %q told of after %q in\n%s", name, what, told, got)
			}
		}
		if c.gone != "" && !strings.Contains(got, "and what it alone was made of (-netdev, ") { // or fd= stays in start, and no QEMU starts
			t.Errorf("%s: what else to take out of start is not told in\n%s", name, got)
		}
	}
}
