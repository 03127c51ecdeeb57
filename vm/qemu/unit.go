package qemu

import (
	"fmt"
	"os"
	"path"
	"strings"
)

// unitOf is systemd's unit that runs a process and may start it again; "" where none is known.
func unitOf(pid int) string {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
	if err != nil {
		return "" // it ends, which others tell
	}
	return unit(string(text))
}

// unit reads it from cgroups(7): the innermost service. A scope starts nothing, as of libvirt or of a person's session,
// but that Proxmox makes one for each of its guests, in qemu.slice.
func unit(text string) string {
	for line := range strings.Lines(text) {
		_, group, _ := strings.Cut(strings.TrimSpace(line), ":")
		controllers, at, _ := strings.Cut(group, ":")
		if controllers != "" && controllers != "name=systemd" {
			continue
		}
		for ; path.Base(at) != "/" && path.Base(at) != "."; at = path.Dir(at) {
			switch name := path.Base(at); {
			case strings.HasSuffix(name, ".service"), strings.HasSuffix(name, ".scope") && path.Base(path.Dir(at)) == "qemu.slice":
				return name
			case strings.HasSuffix(name, ".scope"):
				return ""
			}
		}
	}
	return ""
}
