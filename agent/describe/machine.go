package describe

import (
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"
)

// machine names the machine's type with its version, and its memory as the agent says it.
func (w *writer) machine() {
	machines := w.all("machine", "M")
	for _, a := range machines {
		if name := a.first("type"); name != "" {
			_, made, _ := strings.Cut(name, "+") // the distributor's own version beside QEMU's (Proxmox)
			a.setFirst("type", strings.TrimSuffix(w.Facts.Machine+"+"+made, "+"))
		}
	}
	if !slices.ContainsFunc(machines, func(a *argument) bool { return a.first("type") != "" }) {
		w.add("machine", w.Facts.Machine)
	}
	if sizes := w.all("m"); len(sizes) > 0 {
		sizes[len(sizes)-1].setFirst("size", "{memory}")
	} else {
		w.add("m", "{memory}")
	}
	w.stored()
	w.processors()
}

// isMemory says whether a word of an option is the file, or folder, that memory is in, which is not on huge pages.
func isMemory(a *argument, f field) bool {
	return a.name == "object" && a.first("qom-type") == "memory-backend-file" && f.key == "mem-path" && !strings.HasPrefix(f.value, hugePages)
}

// stored tells of memory that is in a file. QEMU makes it, and where it is there takes it as it is.
func (w *writer) stored() {
	for _, a := range w.all("object") {
		for _, f := range a.option {
			if !isMemory(a, f) {
				continue
			}
			at := w.from(f.value)
			if at != f.value {
				a.set(f.key, at)
			}
			w.look("its memory is in %s: each destination must have the folder for it, and nobody else may use that file", at)
		}
	}
}

// processors tells of those that the command line does not have. None can be plugged in but where it says how many
// there are at first.
func (w *writer) processors() {
	has := 1
	for _, a := range w.all("machine", "M", "smp") {
		cpus := a.get("smp.cpus") // as QEMU 6.2 and later take it, too
		if a.name == "smp" {
			cpus = a.first("cpus")
		} else if !slices.ContainsFunc(a.option, func(f field) bool { return strings.HasPrefix(f.key, "smp.") }) {
			continue
		}
		has, _ = strconv.Atoi(cpus) //nolint:errcheck // then there are as many as there may be
	}
	if has == 0 {
		return
	}
	for _, a := range w.all("device") {
		if strings.HasSuffix(a.first("driver"), "-cpu") {
			has++
		}
	}
	if w.Facts.VCPUs > has {
		w.look("%d of its %d processors were plugged in later; add the -device of each to start, or have -smp there say %d at least", w.Facts.VCPUs-has, w.Facts.VCPUs, w.Facts.SMP())
	}
}

// rooted names files of the host's whole: QEMU is started in another directory elsewhere.
func (w *writer) rooted() {
	for _, a := range w.all("kernel", "initrd", "dtb") {
		if a.text != "" {
			a.text = w.from(a.text)
			a.option = option{{key: a.text, bare: true}}
		}
	}
	for _, a := range w.all("fw_cfg", "acpitable", "smbios", "virtfs", "fsdev") {
		for _, key := range []string{"file", "data", "path"} {
			if at := a.get(key); at != "" {
				a.set(key, w.from(at))
			}
		}
	}
}

// from is a file's path from where QEMU was started.
func (w *writer) from(at string) string {
	if path.IsAbs(at) {
		return at
	}
	dir := w.Dir
	if len(w.all("daemonize")) > 0 { // it works in / since
		if dir = w.startedIn(); dir == "" {
			w.look("%s: where it lies is not known, as QEMU has left the directory in which it was started (-daemonize); write its whole path", at)
		}
	}
	return path.Join("/", dir, at)
}

// startedIn is the directory that a daemon was started in: the one from which a name that it was given leads to a file
// that it has open, or to its monitor's socket. It is "" where none does, or several would.
func (w *writer) startedIn() string {
	var names, found []string
	for _, disk := range w.Facts.Disks {
		names = append(names, fileOf(disk.Path))
	}
	for _, a := range w.all("qmp", "qmp-pretty", "chardev", "serial") {
		_, name, _ := strings.Cut(a.first(""), ":") // such as unix:qmp.sock
		names = append(names, name, a.get("path"))
	}
	for _, name := range names {
		for _, at := range append([]string{w.QMP}, w.Open...) {
			dir, ok := strings.CutSuffix(at, "/"+path.Clean(name))
			if ok && !path.IsAbs(name) && !slices.Contains(found, dir) {
				found = append(found, dir)
			}
		}
	}
	if len(found) != 1 {
		return ""
	}
	return found[0]
}

func (w *writer) add(name, text string) {
	w.options = append(w.options, &argument{name: name, text: text})
}

// inDirectory is where a file or socket is in a directory of the guest's own. What has another's name gets one beside it.
func (w *writer) inDirectory(at string) string {
	name := path.Base(at)
	for i := 2; w.placed[name] != "" && w.placed[name] != at; i++ {
		name = fmt.Sprintf("%d-%s", i, path.Base(at))
	}
	if w.placed == nil {
		w.placed = map[string]string{}
	}
	w.placed[name] = at
	return "{dir}/" + name
}

// backends has what a guest's ports are connected to be there at a destination: sockets and
// files of a directory of its own, nothing that only this process was given.
func (w *writer) backends() {
	for _, a := range w.all("chardev") {
		a.loosen()
		switch at := a.get("path"); {
		case a.dropped || strings.HasPrefix(at, "{"):
		case a.get("fd") != "" || strings.HasPrefix(at, "/dev/fdset/") || slices.Contains([]string{"stdio", "pipe"}, a.first("backend")):
			a.become(option{{key: "null", bare: true}, {key: "id", value: a.get("id")}}, "mux")
		case a.first("backend") == "socket" && at != "" && !a.serves():
			at = w.from(at)
			a.set("path", at)
			w.look("it is a client of the socket %s: that must be there at each destination", at)
		case at != "" && !strings.HasPrefix(at, "/dev/"):
			a.set("path", w.inDirectory(at))
		case a.first("backend") == "socket" && a.get("port") != "" && a.serves():
			w.look("it listens at port %s (chardev %s): nobody else may listen there at a destination", a.get("port"), a.get("id"))
		}
	}
	for _, a := range w.all("serial", "parallel", "debugcon") {
		kind, at, _ := strings.Cut(a.text, ":")
		switch kind {
		case "stdio", "mon", "pipe":
			a.write("null")
		case "file", "unix":
			a.write(kind + ":" + w.inDirectory(at))
		}
	}
	for _, a := range w.all("device") {
		if a.get("vhostfd") != "" {
			a.drop("vhostfd")
		}
	}
	for _, a := range w.all("object") {
		if key := "masterKey"; strings.HasPrefix(a.get("id"), key) || strings.HasPrefix(a.get("keyid"), key) { // libvirt's own, of this run, and what only it opens
			a.dropped = true
		}
	}
}

// ends has QEMU end with its guest, as without -no-shutdown: where it comes to nobody else ends it.
func (w *writer) ends() {
	for _, a := range w.all("action") {
		if a.get("shutdown") == "pause" {
			a.drop("shutdown")
			a.dropped = len(a.option) == 0
		}
	}
}

// loosen drops a log that goes to a descriptor which this process was given.
func (a *argument) loosen() {
	if strings.HasPrefix(a.get("logfile"), "/dev/fdset/") {
		a.drop("logfile", "logappend")
	}
}

// serves says whether a socket waits for clients.
func (a *argument) serves() bool {
	return a.get("server") == "on" || slices.ContainsFunc(a.option, func(f field) bool { return f.key == "server" && f.bare })
}

// screen leaves out windows, which an agent has no screen for, and sound but for SPICE's.
func (w *writer) screen() {
	for _, a := range w.all("audiodev", "audio") {
		if driver := a.first("driver"); driver != "none" && driver != "spice" {
			a.become(option{{key: "none", bare: true}}, "id", "model")
		}
	}
	shown := false
	for _, a := range w.all("display", "nographic", "vnc", "spice", "sdl", "full-screen") {
		switch {
		case a.name == "nographic":
			a.name = "display"
			a.write("none")
		case a.name == "sdl" || a.name == "full-screen":
			a.dropped = true
			continue
		case a.name == "display" && (slices.Contains([]string{"gtk", "sdl", "curses", "cocoa", "dbus", "spice-app", "default"}, a.first("type"))):
			a.write("none")
		case a.name == "vnc" || a.name == "spice":
			w.listens(a)
		}
		shown = true
	}
	if !shown {
		w.add("display", "none")
	}
}

// listens has a server of the guest's screen listen at a socket of its own, or tells where it does.
func (w *writer) listens(a *argument) {
	at, unix := strings.CutPrefix(a.first("vnc"), "unix:")
	switch {
	case unix:
		a.setFirst("vnc", "unix:"+w.inDirectory(at))
	case path.IsAbs(a.get("addr")):
		a.set("addr", w.inDirectory(a.get("addr")))
	case at != "none":
		where := slices.Clone(a.option)
		where.drop("password")
		w.look("it shows itself by -%s %s: nobody else may listen there at a destination", a.name, where)
	}
}
