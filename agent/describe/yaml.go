package describe

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strings"

	"godwit/internal/oneline"
	"godwit/migration"
)

// plain are words that YAML takes as they are.
var plain = regexp.MustCompile(`^-{0,2}[A-Za-z/][A-Za-z0-9_./+-]*$`)

func quote(word string) string {
	if plain.MatchString(word) && !confusing[strings.ToLower(word)] {
		return word
	}
	text, _ := json.Marshal(word) //nolint:errcheck // a string
	return string(text)
}

// confusing are words that mean something else to YAML.
var confusing = map[string]bool{"on": true, "off": true, "yes": true, "no": true, "y": true, "n": true, "true": true, "false": true, "null": true}

// YAML is the description's file.
func (f Found) YAML() string {
	var b strings.Builder
	d := f.Description
	for _, line := range f.Look {
		fmt.Fprintf(&b, "# look: %s\n", oneline.Of(line))
	}
	if len(f.Look) > 0 {
		b.WriteString("\n")
	}
	fmt.Fprintf(&b, "name: %s\nmemory: %s\n", quote(d.Name), size(d.Memory))
	if d.VCPUs > 0 {
		fmt.Fprintf(&b, "vcpus: %d\n", d.VCPUs)
	}
	b.WriteString("nics:\n")
	for _, n := range d.NICs {
		fmt.Fprintf(&b, "  - {mac: %q, tap: %s}\n", n.MAC, quote(n.Tap))
	}
	fmt.Fprintf(&b, "qmp: %s\n", quote(d.QMP))
	if d.Channel != "" {
		fmt.Fprintf(&b, "channel: %s\n", quote(d.Channel))
	}
	if d.Channel == "" || len(d.Addresses) > 0 {
		b.WriteString(addresses(d.Addresses))
	}
	if d.Agent != "" {
		fmt.Fprintf(&b, "agent: %s\n", d.Agent)
	}
	if d.Network != "" {
		fmt.Fprintf(&b, "network: %s\n", d.Network)
	}
	if len(d.Disks) > 0 {
		b.WriteString("disks:\n")
	}
	for _, disk := range d.Disks {
		fmt.Fprintf(&b, "  - {id: %s, path: %s, format: %s}\n", quote(disk.ID), quote(disk.Path), quote(disk.Format))
	}
	b.WriteString("start: [")
	for i, word := range d.Start { // an option and what follows it in one line
		before := " "
		if i == 0 || strings.HasPrefix(word, "-") {
			before = "\n  "
		}
		b.WriteString(before + quote(word) + ",")
	}
	b.WriteString("\n]\n")
	return b.String()
}

func addresses(all []migration.Address) string {
	if len(all) == 0 {
		return "addresses:\n  - {prefix: }   # such as 10.1.1.20/24\n"
	}
	text := "addresses:\n"
	for _, addr := range all {
		text += fmt.Sprintf("  - {prefix: %q", addr.Prefix)
		if addr.Home != "" {
			text += fmt.Sprintf(", home: %s", quote(addr.Home))
		}
		if addr.Gateway.IsValid() {
			text += fmt.Sprintf(", gateway: %q", addr.Gateway)
		}
		if addr.Public.IsValid() {
			text += fmt.Sprintf(", public: %q", addr.Public)
		}
		text += "}\n"
	}
	return text
}

// size is bytes with their unit.
func size(bytes int64) string {
	for _, u := range []struct {
		of   int64
		name string
	}{{1 << 30, "GiB"}, {1 << 20, "MiB"}, {1 << 10, "KiB"}} {
		if bytes%u.of == 0 {
			return fmt.Sprintf("%d%s", bytes/u.of, u.name)
		}
	}
	return fmt.Sprint(bytes)
}
