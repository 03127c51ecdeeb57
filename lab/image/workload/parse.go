// Package workload knows the lines of a scenario's `run` list: what a guest of the
// lab is to do, and what its memory then looks like.
//
//	dirty size=100MiB hot=12% rate=8MiB/s data=random   write memory (data: random, text or touch)
//	disk write=64MiB data=text                          write the disk once (data: random or text)
//	disk rate=4MiB/s area=128MiB                        rewrite a part of the disk for ever
//	cpu                                                 keep one virtual CPU busy
//	http                                                serve HTTP (the lab's guests always do)
//	exec COMMAND                                        start a shell command
//	setup COMMAND                                       run a shell command to its end, which must be a good one
//
// Sizes and rates are written as everywhere in a scenario (package units). It is pure: the scenario's checker and the
// guest share it.
package workload

import (
	"fmt"
	"slices"
	"strings"

	"godwit/internal/units"
)

// Kind is the first word of a line.
type Kind string

// Kinds of workloads.
const (
	Dirty Kind = "dirty"
	Disk  Kind = "disk"
	CPU   Kind = "cpu"
	HTTP  Kind = "http"
	Exec  Kind = "exec"
	Setup Kind = "setup"
)

// PageSize is the unit in which memory and disks are written and checked, bytes.
const PageSize = 4096

// A Workload is one parsed line. Fields that its kind does not have are zero.
type Workload struct {
	Kind    Kind
	Size    int64   // dirty: bytes of the area, at least a page
	Hot     float64 // dirty: share of the area that is rewritten, above 0 up to 1; default 1
	Rate    int64   // dirty, disk: bytes rewritten per second; 0 is none after the first filling
	Text    bool    // dirty, disk: words instead of random bytes
	Touch   bool    // dirty: a rewritten page differs from what it was in one byte, beside its header
	Write   int64   // disk: bytes written once, before the guest counts as ready
	Area    int64   // disk: bytes of it that Rate rewrites, after those of the lines before
	Command string  // exec, setup
}

var keys = map[Kind][]string{
	Dirty: {"size", "hot", "rate", "data"},
	Disk:  {"write", "rate", "area", "data"},
	CPU:   {},
	HTTP:  {},
}

// Parse reads one line. Its errors say what is wrong and what is allowed.
func Parse(line string) (Workload, error) {
	word, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
	w := Workload{Kind: Kind(word)}
	if w.Kind == Exec || w.Kind == Setup {
		if w.Command = strings.TrimSpace(rest); w.Command == "" {
			return Workload{}, fmt.Errorf("%s: no command; allowed: %s COMMAND", word, word)
		}
		return w, nil
	}
	allowed, ok := keys[w.Kind]
	if !ok {
		return Workload{}, fmt.Errorf("unknown workload %q; allowed: dirty, disk, cpu, http, exec, setup", word)
	}
	seen := map[string]bool{}
	for _, field := range strings.Fields(rest) {
		key, value, found := strings.Cut(field, "=")
		if !found || !slices.Contains(allowed, key) {
			return Workload{}, fmt.Errorf("%s: unknown word %q; allowed: %s", word, field, allowedKeys(allowed))
		}
		if seen[key] {
			return Workload{}, fmt.Errorf("%s: %s given twice", word, key)
		}
		seen[key] = true
		if err := w.set(key, value); err != nil {
			return Workload{}, fmt.Errorf("%s: %s: %w", word, key, err)
		}
	}
	return w, w.check(seen)
}

func allowedKeys(allowed []string) string {
	if len(allowed) == 0 {
		return "nothing"
	}
	return strings.Join(allowed, "=, ") + "="
}

func (w *Workload) set(key, value string) (err error) {
	switch key {
	case "size":
		w.Size, err = size(value)
	case "write":
		w.Write, err = size(value)
	case "area":
		w.Area, err = size(value)
	case "rate":
		w.Rate, err = rate(value)
	case "hot":
		w.Hot, err = share(value)
	case "data":
		switch value {
		case "random", "text", "touch":
			w.Text, w.Touch = value == "text", value == "touch"
		default:
			err = fmt.Errorf("%q; allowed: random, text, touch", value)
		}
	}
	return err
}

// check looks at what belongs together and fills in what was left out.
func (w *Workload) check(seen map[string]bool) error {
	switch w.Kind {
	case Dirty:
		if w.Size < PageSize {
			return fmt.Errorf("dirty: size is missing or below a page of %d bytes; as in: dirty size=100MiB hot=12%% rate=8MiB/s", PageSize)
		}
		if !seen["hot"] {
			w.Hot = 1
		}
	case Disk:
		if w.Touch {
			return fmt.Errorf("disk: data: \"touch\"; allowed: random, text")
		}
		if seen["write"] == (seen["rate"] || seen["area"]) {
			return fmt.Errorf("disk: needs either write=SIZE, or rate=RATE and area=SIZE")
		}
		if !seen["write"] && (w.Rate == 0 || w.Area < PageSize) {
			return fmt.Errorf("disk: needs both rate=RATE and area=SIZE, the area of at least %d bytes", PageSize)
		}
		if seen["write"] && w.Write < PageSize {
			return fmt.Errorf("disk: write is below %d bytes", PageSize)
		}
	}
	return nil
}

// size reads a size in bytes, such as 256MiB.
func size(text string) (int64, error) {
	bytes, err := units.Size(text)
	if err != nil {
		return 0, fmt.Errorf("%q is no size; as in: 256MiB", text)
	}
	return bytes, nil
}

// rate reads a rate, such as 8MiB/s or 64mbit, in bytes per second.
func rate(text string) (int64, error) {
	bits, err := units.Rate(text)
	if err != nil {
		return 0, fmt.Errorf("%q is no rate; as in: 8MiB/s, 64mbit", text)
	}
	return (bits + 7) / 8, nil
}

func share(text string) (float64, error) {
	value, err := units.Percent(text)
	if err != nil || value == 0 {
		return 0, fmt.Errorf("%q is no share; as in: 12%%, above 0 and up to 100", text)
	}
	return value, nil
}
