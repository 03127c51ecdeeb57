package describe

import (
	"cmp"
	"slices"
	"strings"
)

// toFollow tells what a guest lacks for its connections to follow it to an address of the new place, all at once, and
// what was not asked.
func (w *writer) toFollow() {
	d := &w.found.Description
	if d.Channel == "" {
		w.look("no guest channel was found: name its addresses below; it keeps them where it goes (network: tunnel). For its connections to follow it needs one: " +
			"-device virtio-serial-pci, -chardev socket,id=guest,server=on,wait=off,path=/run/NAME/guest.sock, -device virtserialport,chardev=guest,name=org.godwit.guest.0, " +
			"and godwit-guest in it (docs/guest.md); with two NICs `agent: dhcp` is another way")
		w.unheard()
		d.Network = "tunnel"
	}
	if len(w.Cards) == 1 {
		w.look("it has one NIC, and keeps its address where it goes (network: tunnel). For its connections to follow it needs a second: -netdev tap and -device virtio-net-pci, " +
			"on a tap of its own in the agents' bridge")
		d.Network = "tunnel"
	}
	w.look("not asked: MPTCP in the guest, in its servers and in its clients, without which no connection follows (docs/guest.md)")
}

// unheard tells of ports by which a guest could answer, and on which nobody here can ask it.
func (w *writer) unheard() {
	for _, known := range ports {
		for _, port := range w.all("device") {
			if port.get("name") != known.name || port.first("driver") != "virtserialport" {
				continue
			}
			to := w.Chardevs[port.get("chardev")]
			if i := slices.IndexFunc(w.options, func(a *argument) bool { return a.name == "chardev" && a.get("id") == port.get("chardev") }); i >= 0 {
				to = cmp.Or(to, w.options[i].String())
			}
			w.look("its port %s is connected to %s, which is no unix socket that waits for a client (server=on)", known.name, cmp.Or(to, "nothing that is known"))
		}
	}
}

// needs tells what of the guest not every destination has, and what it must not have here once it has moved.
func (w *writer) needs() {
	if f := w.Facts; f.Accel == "kvm" && (f.CPU == "host" || f.CPU == "max") {
		w.look("it has its host's own processor (-cpu %s): each destination's must do all that this one's does", f.CPU)
	}
	w.lentUSB()
	if shared := w.Facts.Shared; len(shared) > 0 {
		w.look("others may write its disk %s, too (share-rw=on), and what they write would not go along: it cannot move like that", strings.Join(shared, ", "))
	}
	if w.Facts.Apart || w.User != 0 {
		w.look("its QEMU is not root's here, or confined (AppArmor, another root directory): where it comes to the agent runs it as root, not confined")
	}
	if unit := w.Facts.Unit; unit != "" {
		w.look("%s runs its QEMU, which ends here as it moves: have nothing start it again then (Restart=, a boot, a cluster), "+
			"it would be a second copy", unit)
	}
	for i, disk := range w.found.Description.Disks {
		if size := w.Facts.Disks[i].Size; disk.Format != "raw" && size > 0 {
			const unit = 1 << 30
			w.look("disks[%d]: it is %s here, and raw at each destination, which needs %d GiB for it, free in its STATE/disks", i, disk.Format, (size+unit-1)/unit)
		}
	}
}

// isUSBHost says whether it is a USB device of the host's.
func (a *argument) isUSBHost() bool { return a.name == "device" && a.first("driver") == "usb-host" }

// lentUSB tells of USB devices of this host. QEMU loads one as if it had been pulled out (usb_host_post_load), and
// looks for what it finds there by the same words.
func (w *writer) lentUSB() {
	for _, a := range w.all("device") {
		if !a.isUSBHost() {
			continue
		}
		by := slices.DeleteFunc(slices.Clone(a.option), func(f field) bool {
			return !slices.Contains([]string{"hostdevice", "hostbus", "hostaddr", "hostport", "vendorid", "productid"}, f.key)
		})
		then := "plugs in what a destination has by these words; plug its like in there"
		if a.get("hostdevice") != "" || len(by) == 2 && a.get("hostbus") != "" && a.get("hostaddr") != "" { // it is opened as QEMU starts
			then = "a destination must have its like at that very place, or QEMU does not start there"
		}
		w.look("-device usb-host (%s): this USB device does not come along. QEMU pulls it out of the guest as that moves, "+
			"and %s; or take it out of the guest, and of start", by, then)
	}
}
