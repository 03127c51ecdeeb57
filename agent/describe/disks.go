package describe

import (
	"cmp"
	"fmt"
	"path"
	"slices"
	"strings"

	"godwit/vm"
)

// forDrive are the options of -drive that are not of its format's driver, but for the file's own.
var forDrive = []string{
	"file", "format", "if", "bus", "unit", "index", "media", "id", "node-name", "werror", "rerror", "copy-on-read", "read-only", "readonly",
	"auto-read-only", "discard", "detect-zeroes", "cache", "cache.*", "aio", "group", "throttling.*", "bps*", "iops*",
}

// forRaw are the keys of a format's block node that mean the same for a raw one.
var forRaw = []string{"driver", "node-name", "read-only", "auto-read-only", "discard", "detect-zeroes", "cache.direct", "cache.no-flush", "file"}

// disks names the guest's disks, and has each read a file of the destination's, which is raw whatever it is here.
func (w *writer) disks() {
	for i, disk := range w.Facts.Disks {
		at := disk.Path
		if !path.IsAbs(at) && !strings.HasPrefix(at, "json:") {
			at = path.Join(w.Dir, at)
		}
		format := disk.Format
		if format == "file" || format == "host_device" { // the block node is its file
			format = "raw"
		}
		w.found.Description.Disks = append(w.found.Description.Disks, vm.Disk{ID: disk.ID, Path: at, Format: format})
		file := fmt.Sprintf("{disk%d}", i)
		if !w.drive(disk, file) && !w.node(disk.ID, file) {
			w.look("disks[%d]: what gives it to QEMU is not found in its command line; make its block node read %s", i, file)
		}
	}
}

// drive is the disk's -drive, or what is short for one.
func (w *writer) drive(disk vm.Disk, file string) bool {
	for _, a := range w.all("hda", "hdb", "hdc", "hdd", "cdrom") {
		if a.text != disk.Path {
			continue
		}
		short := "index=" + fmt.Sprint(strings.Index("abcd", strings.TrimPrefix(a.name, "hd")))
		if a.name == "cdrom" {
			short = "index=2,media=cdrom"
		}
		a.name = "drive"
		a.write("file=" + file + ",format=raw," + short)
		return true
	}
	for _, a := range w.all("drive") {
		if id := a.get("id"); id != disk.ID && (id != "" || a.file() != fileOf(disk.Path)) {
			continue
		}
		w.encrypted(a, file)
		a.keep(forDrive)
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

// node is the disk's block node, with those that it is made of: one for its format, one for its file, and any that the image
// rests on, which the raw one does not.
func (w *writer) node(name, file string) bool {
	a := w.named(name)
	if a == nil {
		return false
	}
	driver := a.first("driver")
	switch under := a.get("file"); {
	case a.get("filename") != "" || driver == "host_device": // the file itself
		a.setFirst("driver", "file")
		a.set("filename", file)
		return true
	case a.get("file.filename") != "":
		w.without(a.get("backing"))
		a.keep(append(slices.Clone(forRaw), "file.driver", "file.filename", "file.aio", "file.locking", "file.cache.direct", "file.cache.no-flush"))
		a.set("driver", "raw")
		a.set("file.driver", "file")
		a.set("file.filename", file)
		return true
	case under != "" && w.node(under, file):
		w.without(a.get("backing"))
		if driver != "raw" {
			a.keep(forRaw)
			a.set("driver", "raw")
		}
		return true
	}
	return false
}

// named is the -blockdev of a node; nil without one.
func (w *writer) named(node string) *argument {
	for _, a := range w.all("blockdev") {
		if node != "" && a.get("node-name") == node {
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

// keep drops all keys that match none of these (path.Match).
func (a *argument) keep(patterns []string) {
	a.option = slices.DeleteFunc(a.option, func(f field) bool {
		return !slices.ContainsFunc(patterns, func(p string) bool { ok, err := path.Match(p, f.key); return ok && err == nil })
	})
	a.changed = true
}
