package describe

import (
	"fmt"
	"slices"
	"strings"

	"godwit/vm/qemu"
)

// plugged tells of devices that the command line does not have, and of those that it alone has. Others tell of NICs
// (nics) and of processors.
func (w *writer) plugged() {
	if w.Devices == nil {
		return
	}
	var made, more, gone []string
	unnamed := w.unnamed()
	for _, a := range w.all("device") {
		if id := a.get("id"); id != "" {
			made = append(made, id)
			there := slices.ContainsFunc(w.Devices, func(d qemu.Device) bool { return d.ID == id })
			if !there && a.get("failover_pair_id") == "" { // such a one is there only while the guest takes it
				gone = append(gone, id)
			}
		}
	}
	if len(w.all("debugcon")) > 0 {
		made = append(made, "debugcon") // as QEMU names what that makes (debugcon_parse)
	}
	for _, d := range w.Devices {
		switch {
		case strings.HasSuffix(d.Type, "-cpu"), slices.ContainsFunc(w.Cards, func(c qemu.Card) bool { return c.Path == d.Path && w.place(c) < 0 }):
		case d.ID == "":
			unnamed--
		case !slices.Contains(made, d.ID):
			more = append(more, fmt.Sprintf("%s (%s)", d.ID, d.Type))
		}
	}
	if unnamed < 0 {
		more = append(more, fmt.Sprintf("%d without an id", -unnamed))
	}
	if unnamed > 0 {
		gone = append(gone, fmt.Sprintf("%d without an id", unnamed))
	}
	if len(more) > 0 {
		w.look("plugged in later: %s; add to start the -device of each, and what it is made of (-object, -blockdev, -chardev)", strings.Join(more, ", "))
	}
	if len(gone) > 0 {
		w.look("unplugged: %s; a destination has it again, which the guest finds as it boots. Take its -device out of start, "+
			"and what it alone was made of (-netdev, -drive, -blockdev, -object, -chardev), "+
			"and have those after it that say no addr= or port= say which they have here", strings.Join(gone, ", "))
	}
}

// unnamed is how many devices without an id the command line makes, but for processors.
func (w *writer) unnamed() (n int) {
	for _, a := range w.options {
		switch {
		case a.name == "device" && a.get("id") == "" && !strings.HasSuffix(a.first("driver"), "-cpu"),
			a.name == "drive" && a.get("if") == "virtio", slices.Contains([]string{"virtfs", "virtfs_synth", "watchdog"}, a.name):
			n++
		}
	}
	return n
}
