package agent

import (
	"testing"
	"time"

	"godwit/agent/agenttest"
	"godwit/internal/need"
	"godwit/migration"
	"godwit/vm"
)

// spiller is a guest's QEMU of which that much is in memory, by its process.
type spiller struct {
	vm.Machine
	pid int
}

func (s spiller) PID() int           { return s.pid }
func (spiller) GuestChannel() string { return "" }

// TestRoomToSpill: a guest whose QEMU hands over all of its memory as it is stopped is refused in check, while it runs,
// where neither the buffer nor the disk of STATE has room for that. What waits in QEMU, and QEMU's own transfers, want none.
func TestRoomToSpill(t *testing.T) {
	need.Root(t)
	const mib, hugePages, nobody = 1 << 20, 2 << 20, 1 << 30
	for name, c := range map[string]struct {
		mode, transfer string
		hold           vm.Hold
		buffer         int64
		pageSize       int64
		pid            int
		refused        bool
	}{
		"no room":                          {mode: "stopcopy", transfer: "lanes", hold: vm.HoldLowBandwidth, pid: nobody, refused: true},
		"by mptcp":                         {mode: "stopcopy", transfer: "mptcp", hold: vm.HoldLowBandwidth, pid: nobody, refused: true},
		"huge pages, not seen in its QEMU": {mode: "stopcopy", transfer: "lanes", hold: vm.HoldLowBandwidth, pageSize: hugePages, pid: 1, refused: true},
		"little of it was ever touched":    {mode: "stopcopy", transfer: "lanes", hold: vm.HoldLowBandwidth, pid: 1},
		"the buffer has room":              {mode: "stopcopy", transfer: "lanes", hold: vm.HoldLowBandwidth, buffer: 4096 * mib, pid: nobody},
		"disk and buffer have":             {mode: "stopcopy", transfer: "lanes", hold: vm.HoldLowBandwidth, buffer: 1030 * mib, pid: nobody},
		"nearly":                           {mode: "stopcopy", transfer: "lanes", hold: vm.HoldLowBandwidth, buffer: 1000 * mib, pid: nobody, refused: true},
		"it waits in QEMU":                 {mode: "stopcopy", transfer: "lanes", hold: vm.HoldAck, pid: nobody},
		"by QEMU":                          {mode: "stopcopy", transfer: "qemu-tcp", hold: vm.HoldLowBandwidth, pid: nobody},
		"it is copied before":              {mode: "precopy", transfer: "lanes", hold: vm.HoldLowBandwidth, pid: nobody},
	} {
		t.Run(name, func(t *testing.T) {
			m, _ := budgeted(t, c.mode, 300*time.Millisecond, 20*time.Millisecond)
			mounted(t, m.a.config.State, "1024m")
			m.plan.Transfer, m.plan.Network, m.plan.Buffer = c.transfer, "tunnel", c.buffer
			m.work.facts = vm.Facts{Hold: c.hold, Memory: 2048 * mib, PageSize: c.pageSize}
			m.guest.RunsIn(spiller{pid: c.pid})
			err := m.checkGuest(t.Context())
			if !c.refused {
				agenttest.Refused(t, name, err, "")
				return
			}
			agenttest.Refused(t, name, err, migration.CodeCapacity, "migrate guest web: this host has 1024 MiB of disk free in "+m.a.config.State,
				"MiB are needed: in mode stopcopy", "--buffer", "--transfer qemu-multifd")
		})
	}
}
