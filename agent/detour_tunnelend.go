package agent

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"

	"godwit/agent/detour"
	"godwit/agent/ends"
	"godwit/agent/statefile"
	"godwit/migration"
)

// ownName refuses a detour whose tunnel would have the name of another's: what has a name is taken down before it is
// made anew.
func (a *Agent) ownName(id string) error {
	name := ends.Name(id)
	other := a.detours.TunnelOf(name, id)
	if other == "" {
		return nil
	}
	return &migration.Problem{Code: migration.CodePath, Text: fmt.Sprintf(
		"tunnel %s: detour %s has one of that name on host %s; migrate again, which makes another", name, other, a.config.Host)}
}

// endAstray ends the tunnels that no detour has, as an agent was killed before it had written the detour down, or
// between that it has ended and the tunnel's end. It is for the start: nobody is making any.
func (a *Agent) endAstray(ctx context.Context) {
	for _, socket := range statefile.Matching(ends.Dir(a.config), "gwt-*.sock") {
		name := strings.TrimSuffix(filepath.Base(socket), ".sock")
		if a.detours.TunnelOf(name, "") != "" {
			continue
		}
		err := detour.DropTunnel(ctx, ends.Dir(a.config), name)
		a.log.Warn("tunnel of no detour ended", "tunnel", name, "error", err)
	}
}

// dropStrays removes what leads to or from no guest, and an agent of another release has left in the kernel. It is for
// the start, too.
func (a *Agent) dropStrays() {
	removed, err := a.detours.DropStrays()
	if len(removed) > 0 || err != nil {
		a.log.Warn("network state of no guest removed", "entries", removed, "error", err)
	}
}
