package describe

import (
	"errors"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"
)

// argument is one of QEMU's options with what follows it.
type argument struct {
	name    string // without dashes
	alone   bool   // nothing follows
	text    string // what follows, as it was
	option         // the same, taken apart; nil where nothing follows
	changed bool   // text is not what option says any more
	dropped bool
}

// lonely are the options after which nothing follows (qemu-options.hx), as far as somebody may
// have written a file's name behind them.
var lonely = []string{
	"nodefaults", "no-user-config", "nographic", "enable-kvm", "no-reboot", "no-shutdown", "S", "s", "daemonize", "snapshot",
	"no-acpi", "no-hpet", "usb", "full-screen", "no-fd-bootchk", "win2k-hack", "mem-prealloc", "only-migratable", "no-quit", "preconfig",
	"portrait", "one-insn-per-tb", "singlestep", "xen-attach",
}

// unused are options that have no meaning for a guest that comes, or that the agent says itself.
var unused = []string{"S", "s", "daemonize", "no-shutdown", "preconfig", "incoming", "pidfile", "D", "d", "loadvm", "add-fd", "gdb", "chroot", "runas", "run-with", "trace"}

// replaced are words that mean something in the start of a description.
var replaced = regexp.MustCompile(`\{(qmp|channel|dir|name|memory|vcpus|(fd|tap|disk)\d)\}`)

// split takes a command line apart, and drops what is unused.
func split(words []string) ([]*argument, error) {
	switch {
	case len(words) == 0:
		return nil, errors.New("its command line cannot be seen")
	case !utf8.ValidString(strings.Join(words, " ")):
		return nil, errors.New("its command line has bytes that are no UTF-8, which no description can say: rename what they name")
	case replaced.MatchString(strings.Join(words, " ")):
		return nil, errors.New("its command line has words such as {memory}, which agents replace (docs/agent.md): rename what they name")
	}
	var all []*argument
	for rest := words[1:]; len(rest) > 0; {
		word := rest[0]
		rest = rest[1:]
		a := &argument{name: strings.TrimPrefix(strings.TrimPrefix(word, "-"), "-"), alone: true}
		switch {
		case !strings.HasPrefix(word, "-"): // a disk, as after -hda
			a.name, a.text, a.alone = "hda", word, false
		case len(rest) > 0 && !slices.Contains(lonely, a.name) && (!strings.HasPrefix(rest[0], "-") || a.name == "append"):
			a.text, a.alone, rest = rest[0], false, rest[1:]
		}
		var err error
		if a.text != "" {
			if a.option, err = parse(a.text); err != nil {
				return nil, err
			}
		}
		a.dropped = slices.Contains(unused, a.name)
		all = append(all, a)
	}
	for _, a := range all {
		switch {
		case a.name == "readconfig":
			return nil, errors.New("its QEMU reads its devices from a file (-readconfig), which cannot be seen: write the description yourself")
		case a.name == "snapshot", a.name == "drive" && a.get("snapshot") == "on":
			return nil, errors.New("its QEMU throws away what its disks get (-snapshot): such a guest is not moved")
		}
	}
	return all, nil
}

func (a *argument) set(key, value string) {
	a.option.set(key, value)
	a.changed = true
}

func (a *argument) setFirst(implied, value string) {
	a.option.setFirst(implied, value)
	a.changed = true
}

func (a *argument) drop(keys ...string) {
	a.option.drop(keys...)
	a.changed = true
}

// become replaces all but these keys.
func (a *argument) become(o option, keep ...string) {
	for _, f := range a.option {
		if slices.Contains(keep, f.key) {
			o = append(o, f)
		}
	}
	a.option, a.changed = o, true
}

// write replaces all of it.
func (a *argument) write(text string) {
	a.option, a.text, a.alone, a.changed = nil, text, false, false
}

// words are what QEMU is given.
func (a *argument) words() []string {
	switch {
	case a.changed:
		return []string{"-" + a.name, a.option.String()}
	case a.alone:
		return []string{"-" + a.name}
	}
	return []string{"-" + a.name, a.text}
}
