package describe

import (
	"cmp"
	"fmt"
	"path"
	"slices"
	"strings"

	"godwit/vm"
)

// shorts are the options that are short for a -drive, and what that says.
var shorts = map[string]string{
	"hda": "index=0", "hdb": "index=1", "hdc": "index=2", "hdd": "index=3", "cdrom": "index=2,media=cdrom",
	"fda": "if=floppy,index=0", "fdb": "if=floppy,index=1", "pflash": "if=pflash", "sd": "if=sd", "mtdblock": "if=mtd",
}

// forDrive are the options of -drive that are not of its format's driver, but for the file's own.
var forDrive = []string{
	"file", "format", "if", "bus", "unit", "index", "media", "id", "node-name", "werror", "rerror", "copy-on-read", "read-only", "readonly",
	"auto-read-only", "discard", "detect-zeroes", "cache", "cache.*", "aio", "group", "throttling.*", "bps*", "iops*",
}

// forRaw are the keys of a format's block node that mean the same for a raw one.
var forRaw = []string{"driver", "node-name", "read-only", "auto-read-only", "discard", "detect-zeroes", "cache.direct", "cache.no-flush", "file", "file.*"}

// disks names the guest's disks, and has each read a file of the destination's, which is raw whatever it is here.
func (w *writer) disks() {
	for i, disk := range w.Facts.Disks {
		at := fileOf(disk.Path)
		if !strings.HasPrefix(at, "json:") {
			at = w.from(at)
		}
		format := disk.Format
		if format == "file" || format == "host_device" { // the block node is its file
			format = "raw"
		}
		w.found.Description.Disks = append(w.found.Description.Disks, vm.Disk{ID: disk.ID, Path: at, Format: format})
		file := fmt.Sprintf("{disk%d}", i)
		if !w.drive(disk, file) && !w.node(w.named(disk.ID), "", file) {
			w.look("disks[%d]: it was plugged in later, or is not found in its command line; have a block node %s read %s in start", i, disk.ID, file)
		}
	}
}

// drive is the disk's -drive, or what is short for one.
func (w *writer) drive(disk vm.Disk, file string) bool {
	for _, a := range w.options {
		if what, short := shorts[a.name]; short && a.text == disk.Path {
			a.name = "drive"
			a.write("file=" + file + ",format=raw," + what)
			return true
		}
	}
	for _, a := range w.all("drive") {
		if id := a.get("id"); id != disk.ID && (id != "" || a.file() != fileOf(disk.Path)) {
			continue
		}
		w.encrypted(a, file)
		a.keep("", forDrive)
		a.set("file", file)
		a.set("format", "raw")
		return true
	}
	return false
}

// file is that of a -drive.
func (a *argument) file() string { return cmp.Or(a.get("file"), a.get("file.filename")) }

// fileOf is the file in what QEMU says that a disk reads, which is JSON where it has options.
func fileOf(disk string) string {
	text, ok := strings.CutPrefix(disk, "json:")
	if !ok {
		return disk
	}
	o, _ := parse(text) //nolint:errcheck // what cannot be read has no file
	return cmp.Or(o.get("file.filename"), o.get("file.file.filename"), disk)
}

// encrypted tells of a disk that is, by the option that gives it.
func (w *writer) encrypted(a *argument, file string) {
	if slices.ContainsFunc(a.option, func(f field) bool { return strings.HasSuffix(f.key, "key-secret") }) {
		w.look("%s: the disk is encrypted here, and in plain at a destination", file)
	}
}

// node is the disk's block node, or one within it, whose keys begin with at, and those that it is made of: filters, one
// for its format, one for its file, and any that the image rests on, which the raw one does not.
func (w *writer) node(a *argument, at, file string) bool {
	switch {
	case a == nil || !slices.ContainsFunc(a.option, func(f field) bool { return strings.HasPrefix(f.key, at) }):
		return false
	case a.get(at+"filename") != "": // the file itself
		a.set(at+"driver", "file")
		a.set(at+"filename", file)
		return true
	case !w.node(w.named(a.get(at+"file")), "", file) && !w.node(a, at+"file.", file):
		return false
	case slices.Contains([]string{"throttle", "copy-on-read"}, a.get(at+"driver")):
		return true
	}
	w.encrypted(a, file)
	w.without(a.get(at + "backing"))
	a.keep(at, forRaw)
	a.set(at+"driver", "raw")
	return true
}

// named is the -blockdev of a node; nil without one.
func (w *writer) named(node string) *argument {
	for _, a := range w.all("blockdev") {
		if node != "" && a.get("node-name") == node {
			if a.option[0].bare {
				a.option[0] = field{key: "driver", value: a.option[0].key}
			}
			return a
		}
	}
	return nil
}

// without drops a node on which an image rested, and what that is made of.
func (w *writer) without(node string) {
	a := w.named(node)
	if a == nil || a.dropped {
		return
	}
	a.dropped = true
	w.without(a.get("file"))
	w.without(a.get("backing"))
}

// keep drops the keys that begin with at, and go on as none of these patterns (path.Match).
func (a *argument) keep(at string, patterns []string) {
	a.option = slices.DeleteFunc(a.option, func(f field) bool {
		rest, in := strings.CutPrefix(f.key, at)
		return in && !slices.ContainsFunc(patterns, func(p string) bool { ok, err := path.Match(p, rest); return ok && err == nil })
	})
	a.changed = true
}
