package agent

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"godwit/agent/care"
	"godwit/agent/describe"
	"godwit/internal/durable"
	"godwit/migration"
)

// What is kept of a guest that has ended is for a person, who starts it by hand and adopts it again. No agent reads it:
// that a guest ended here does not say that no other host has it.

const mostEnded = 100 // guests

// keepDescription writes down how a guest that has ended can be adopted again; its path, for the log, or why there is none.
func (a *Agent) keepDescription(h care.Held, why string) string {
	if len(h.Description.Start) == 0 {
		return "none, it was of an image of the lab"
	}
	dir := a.config.StatePath("ended-guests")
	path := filepath.Join(dir, h.Description.Name+".yaml")
	err := os.MkdirAll(dir, 0o700)
	if err == nil {
		err = durable.WriteFile(path, []byte(a.lastDescription(h, why).YAML()))
	}
	if err == nil {
		err = boundEnded(dir)
	}
	if err != nil {
		a.log.Warn("keep the description of a guest that ended", "guest", h.Description.Name, "error", err)
	}
	return path
}

// lastDescription is that of a guest as it was here last, with what a person has to look at.
func (a *Agent) lastDescription(h care.Held, why string) describe.Found {
	d := h.Description
	out := describe.Found{Look: []string{
		fmt.Sprintf("it ended on %s at %s (%s), by epoch %d", a.config.Host, a.clock().UTC().Format("2006-01-02 15:04:05 MST"), cmp.Or(why, "not known why"), h.Epoch),
		"start it by hand where `godwit guest ls` on no host has it, and adopt it then: docs/agent.md, A guest that has ended",
	}}
	if d.QMP == "" { // an agent started it, whose sockets and taps these were
		out.Look = append(out.Look, "qmp, channel and taps: those with which you start it")
		d.QMP = "/run/" + d.Name + "/qmp.sock"
		if slices.ContainsFunc(d.Start, func(w string) bool { return strings.Contains(w, "{channel}") }) {
			d.Channel = "/run/" + d.Name + "/guest.sock"
		}
		d.NICs = slices.Clone(d.NICs)
		for i := range d.NICs {
			d.NICs[i].Tap = fmt.Sprintf("tap-%d", i)
		}
	}
	d.Addresses = nil
	for _, addr := range h.Addresses {
		if addr.Home != a.config.Host {
			out.Look = append(out.Look, fmt.Sprintf("%s leads %s here no more: start it there, with its disks, or give it an address of this site", addr.Home, addr.Prefix.Addr()))
		}
		if d.Channel == "" { // else it is asked
			d.Addresses = append(d.Addresses, migration.Address{Prefix: addr.Prefix, Gateway: addr.Gateway, Home: addr.Home})
		}
	}
	out.Description = d
	return out
}

// boundEnded removes the oldest descriptions beyond mostEnded, and what was left half written.
func boundEnded(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	var all []os.FileInfo
	for _, e := range entries {
		if info, err := e.Info(); err == nil {
			all = append(all, info)
		}
	}
	slices.SortFunc(all, func(a, b os.FileInfo) int { return b.ModTime().Compare(a.ModTime()) })
	for _, info := range all[min(len(all), mostEnded):] {
		if err := os.Remove(filepath.Join(dir, info.Name())); err != nil && !os.IsNotExist(err) {
			return err
		}
	}
	return nil
}
