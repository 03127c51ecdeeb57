package agent

import (
	"crypto/rand"
	"encoding/hex"
	"hash/fnv"
	"net"
	"os"
	"syscall"

	"godwit/agent/limits"
	"godwit/migration"
	"godwit/netstate/hold"
)

var problemShutdown = &migration.Problem{Code: migration.CodeAsked, Text: "the agent is shutting its host down"}

// newID names a migration: m- and eight hex digits.
func newID() string {
	var b [4]byte
	rand.Read(b[:]) //nolint:errcheck // does not fail
	return "m-" + hex.EncodeToString(b[:])
}

// hashID shortens any id to the form of a migration's, for device names.
func hashID(id string) string {
	h := fnv.New32a()
	h.Write([]byte(id))
	return "m-" + hex.EncodeToString(h.Sum(nil))
}

func flock(f *os.File) error { return syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) }

// alive says whether the guest's QEMU still runs.
func (g *Guest) alive() bool {
	if g.Machine == nil {
		return false
	}
	select {
	case <-g.Machine.Done():
		return false
	default:
		return true
	}
}

// restoreChannel stops the ticks of a guest that stays here.
func (a *Agent) restoreChannel(g *Guest) {
	c := g.channel()
	if c == nil {
		return
	}
	ctx, cancel := limits.EndTicks.On(a.ctx)
	defer cancel()
	if err := limits.Says(ctx, c.Ticks(ctx, 0)); err != nil {
		a.log.Info("end ticks", "guest", g.name(), "error", err)
	}
}

// findTaps gets the descriptors of a guest's taps back from its QEMU.
func (a *Agent) findTaps(g *Guest) {
	g.Taps = nil
	for _, name := range g.Held.Taps {
		var tap *os.File
		if g.Machine != nil {
			var err error
			if tap, err = hold.Recover(g.Machine.PID(), name); err != nil {
				a.log.Warn("tap's descriptor not found again", "guest", g.name(), "tap", name, "error", err)
			}
		}
		g.Taps = append(g.Taps, tap)
	}
}

// activeTap is our descriptor of the active NIC's tap, nil where there is none.
func (g *Guest) activeTap() *os.File {
	if g.Held.Active < len(g.Taps) {
		return g.Taps[g.Held.Active]
	}
	return nil
}

// hardwareOf is a device's MAC.
func hardwareOf(device string) (net.HardwareAddr, error) {
	ifi, err := net.InterfaceByName(device)
	if err != nil {
		return nil, err
	}
	return ifi.HardwareAddr, nil
}
