// Package describe writes the description of a guest that runs already: what its QEMU was
// started with, made into how it is started elsewhere (docs/agent.md, "Guests that somebody
// else started"). It is pure but for Look.
package describe

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"godwit/agent/config"
	"godwit/vm"
	"godwit/vm/qemu"
)

// Running is a guest's QEMU.
type Running struct {
	QMP      string   // the socket by which it was asked
	Dir      string   // in which it was started, or that it has changed to since
	Open     []string // files that it has open, by their whole paths
	Words    []string // its program and arguments
	Facts    vm.Facts
	User     int // who asked: who else's QEMU is Apart
	Cards    []qemu.Card
	Devices  []qemu.Device     // nil: not asked
	Taps     map[int]string    // names of its taps, by descriptor
	Chardevs map[string]string // what its character devices are connected to, in QEMU's words, by id
}

// Found is a guest's description, and what a person should look at before it is used, a
// line each.
type Found struct {
	Description config.Description `json:"description"`
	Look        []string           `json:"look"`
}

// ports are the names of guest channels, the best first, and who answers there.
var ports = []struct{ name, agent string }{{"org.godwit.guest.0", ""}, {"org.qemu.guest_agent.0", config.AgentQGA}}

// Of describes a guest. An error says what of it cannot be started elsewhere.
func Of(r Running) (Found, error) {
	options, err := split(r.Words)
	if err != nil {
		return Found{}, err
	}
	w := &writer{Running: r, options: options}
	w.found.Description = config.Description{Name: nameOf(r.Facts.Name), Memory: r.Facts.Base, QMP: r.QMP}
	w.found.Look = []string{}
	w.monitors()
	w.channel()
	w.disks()
	slices.SortStableFunc(w.Cards, func(a, b qemu.Card) int { return w.place(a) - w.place(b) })
	if err := w.nics(); err != nil {
		return Found{}, err
	}
	w.plugged()
	w.toFollow()
	w.needs()
	w.start()
	for _, why := range r.Facts.Blockers {
		w.look("QEMU does not let it move as it is: %s", why)
	}
	for _, why := range r.Facts.Closed {
		w.look("its QEMU must open %s; let it find that file by this name and its user read it, or start it with the whole path", why)
	}
	return w.found, w.found.Description.Check()
}

// nameOf makes a guest's name of QEMU's, which may be any, or none.
func nameOf(name string) string {
	if config.IsGuestName(name) {
		return name
	}
	return "guest"
}

// writer makes a description.
type writer struct {
	Running
	options []*argument
	placed  map[string]string // what is in the guest's directory elsewhere, by its name there: where it is here
	found   Found
}

func (w *writer) look(format string, args ...any) {
	w.found.Look = append(w.found.Look, fmt.Sprintf(format, args...))
}

// all are the options of these names.
func (w *writer) all(names ...string) []*argument {
	var some []*argument
	for _, a := range w.options {
		if slices.Contains(names, a.name) {
			some = append(some, a)
		}
	}
	return some
}

// monitors drops them: the guest gets one of its own, which the agent asks. What has a port of the guest beside one
// (mux) stays.
func (w *writer) monitors() {
	var chardevs []string
	for _, a := range w.all("mon") {
		chardevs = append(chardevs, a.first("chardev"))
	}
	for _, a := range w.options {
		if a.name == "chardev" && slices.Contains(chardevs, a.get("id")) && a.get("mux") != "on" || slices.Contains([]string{"mon", "monitor", "qmp", "qmp-pretty"}, a.name) {
			a.dropped = true
		}
	}
}

// channel finds the port on which the guest answers. Where there is none, toFollow tells of it.
func (w *writer) channel() {
	d := &w.found.Description
	for _, port := range ports {
		if d.Channel = w.at(port.name); d.Channel != "" {
			d.Agent = port.agent
			break
		}
	}
	switch {
	case d.Channel == "":
	case d.Agent == config.AgentQGA && strings.Contains(d.Channel, "/libvirt/"):
		w.look("libvirt has the channel %s open, and it must be yours alone: give the guest another (docs/guest.md)", d.Channel)
	default:
		w.look("whether somebody in the guest answers on the channel was not asked: `godwit guest adopt` asks")
	}
}

// at has the port of a name use the agent's socket, and is the one that it has here; "" where it has none.
func (w *writer) at(name string) string {
	for _, port := range w.all("device") {
		if port.get("name") != name || port.first("driver") != "virtserialport" {
			continue
		}
		for _, a := range w.all("chardev") {
			id := a.get("id")
			if at := w.socketOf(a); id == port.get("chardev") && at != "" {
				a.become(option{
					{key: "socket", bare: true}, {key: "id", value: id}, {key: "path", value: "{channel}"},
					{key: "server", value: "on"}, {key: "wait", value: "off"},
				})
				return w.from(at)
			}
		}
	}
	return ""
}

// socketOf is the path of the unix socket on which a character device waits for a client; "" where it does not. One that was
// given as a descriptor (libvirt) is known to QEMU alone, in words such as `disconnected:unix:/run/web.sock,server=on`.
func (w *writer) socketOf(chardev *argument) string {
	if chardev.first("backend") != "socket" {
		return ""
	}
	said, ok := strings.CutPrefix(strings.TrimPrefix(w.Chardevs[chardev.get("id")], "disconnected:"), "unix:")
	if at := strings.TrimSuffix(said, ",server=on"); ok && at != said {
		return at
	}
	return ""
}

// nics names the guest's cards, and has each get a descriptor of its tap.
func (w *writer) nics() error {
	if old := w.all("nic", "net"); len(old) > 0 && !slices.ContainsFunc(old, func(a *argument) bool { return a.first("") == "none" }) {
		return fmt.Errorf("its NICs were made by -%s, and only such as -device made can be moved: start it with -netdev and -device", old[0].name)
	}
	if len(w.Cards) == 0 {
		return errors.New("its QEMU has no NIC that -device made, and only such a guest can be moved")
	}
	for i, card := range w.Cards {
		if card.Queues > 1 {
			return fmt.Errorf("its NIC %s has %d pairs of queues, and only one with one can be moved: start it with queues=1", card.MAC, card.Queues)
		}
		tap := card.Tap
		for _, a := range w.all("netdev") {
			if a.get("id") != card.Netdev {
				continue
			}
			if kind := a.first("type"); kind != "tap" && kind != "bridge" {
				return fmt.Errorf("its NIC %s is connected by %s, and only one on a tap can be moved", card.MAC, kind)
			}
			if tap == "" {
				tap = w.tapOf(a)
			}
			a.become(option{{key: "tap", bare: true}, {key: "id", value: card.Netdev}, {key: "fd", value: fmt.Sprintf("{fd%d}", i)}}, "vhost")
		}
		if w.place(card) < 0 {
			w.look("nics[%d]: it was plugged in later; add its -netdev, with fd={fd%d}, and its -device to start", i, i)
		}
		if tap == "" {
			w.look("nics[%d]: its tap is not known; write its name", i)
		}
		w.found.Description.NICs = append(w.found.Description.NICs, config.NIC{MAC: card.MAC, Tap: tap})
	}
	return nil
}

// place is where a card's netdev stands among the options.
func (w *writer) place(card qemu.Card) int {
	return slices.IndexFunc(w.options, func(a *argument) bool { return a.name == "netdev" && a.get("id") == card.Netdev })
}

// tapOf is the name of the tap of a netdev that QEMU inherited, or got from a helper; "" where
// that is not known.
func (w *writer) tapOf(netdev *argument) string {
	var fd int
	if _, err := fmt.Sscan(strings.SplitN(netdev.get("fd")+netdev.get("fds"), ":", 2)[0], &fd); err == nil {
		return w.Taps[fd]
	}
	if len(w.Taps) == 1 && len(w.Cards) == 1 {
		for _, name := range w.Taps {
			return name
		}
	}
	return ""
}

// start puts the command together.
func (w *writer) start() {
	w.machine()
	w.rooted()
	w.backends()
	w.screen()
	w.ends()
	program := w.Words[0]
	if strings.Contains(program, "/") {
		program = w.from(program)
	}
	words := []string{program, "-S", "-incoming", "defer"}
	for _, a := range w.options {
		if !a.dropped {
			words = append(words, a.words()...)
		}
	}
	w.found.Description.Start = append(words, "-qmp", "unix:{qmp},server=on,wait=off")
	w.elsewhere()
}

// elsewhere tells which files the command names that must be at a destination, and what of it is not for everybody.
func (w *writer) elsewhere() {
	var files, private []string
	for _, a := range w.options {
		if a.dropped || a.name == "append" || a.isUSBHost() || a.name == "chardev" && a.first("backend") == "socket" { // that was told of, see needs and backends
			continue
		}
		for _, f := range a.option {
			at := f.value
			if f.bare {
				at = f.key
			}
			if path.IsAbs(at) && !everywhere(at) && !isMemory(a, f) && !slices.Contains(files, at) {
				files = append(files, at)
			}
			if isPrivate(a, f) && !slices.Contains(private, "-"+a.name) {
				private = append(private, "-"+a.name)
			}
		}
	}
	if len(files) > 0 {
		w.look("each destination must have the same: %s", strings.Join(files, ", "))
	}
	if len(private) > 0 {
		w.look("it has passwords in plain, in %s: let nobody else read this; it goes with the guest to each destination", strings.Join(private, ", "))
	}
}

// hugePages is where huge pages are, in which memory is no file that lasts.
const hugePages = "/dev/hugepages"

// devices are those that every host has, and folders. What is in them is not everywhere: libvirt makes a folder of huge
// pages for each guest.
var devices = []string{"/dev/null", "/dev/zero", "/dev/random", "/dev/urandom", "/dev/kvm", "/dev/shm", hugePages}

// everywhere says whether a path is one of QEMU's own objects, or a device that is no host's own.
func everywhere(at string) bool {
	return slices.Contains(devices, path.Clean(at)) || strings.HasPrefix(at, "/machine/") || strings.HasPrefix(at, "/dev/fdset/")
}

// isPrivate says whether a word is a password, and not whether there is one.
func isPrivate(a *argument, f field) bool {
	if a.name == "object" {
		return f.key == "data" && a.first("qom-type") == "secret" && a.get("keyid") == "" // or another opens it
	}
	return f.key == "password" && !f.bare && f.value != "on" && f.value != "off"
}
