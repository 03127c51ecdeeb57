package agent

import (
	"context"
	"errors"
	"testing"
	"time"

	"godwit/agent/care"
	"godwit/agent/config"
	"godwit/agent/guests"
	"godwit/agent/record"
	"godwit/migration"
	"godwit/vm"
)

var errAsked = errors.New("it is asked alone")

// askedToSend is a QEMU that is asked to send, and does not.
type askedToSend struct {
	gone
	opts vm.MigrateOptions
}

func (a *askedToSend) Migrate(_ context.Context, opts vm.MigrateOptions) error {
	a.opts = opts
	return errAsked
}

// TestHowQEMUSends: one whose pages nobody takes apart looks at once as its guest stands still; and where nobody passes them on
// it is the one who keeps the limit, and whose connection comes to rest before.
func TestHowQEMUSends(t *testing.T) {
	for _, c := range []struct {
		plan            migration.Plan
		looks, keeps    bool
		limited, passed bool // QEMU itself, by us
	}{
		{migration.Plan{Transfer: "lanes"}, false, false, false, true},
		{migration.Plan{Transfer: "mptcp"}, false, false, false, true},
		{migration.Plan{Transfer: "qemu-mptcp"}, true, true, true, false},
		{migration.Plan{Transfer: "qemu-tcp"}, true, false, true, true},
		{migration.Plan{Transfer: "qemu-multifd"}, true, false, true, true},
		{migration.Plan{Transfer: "qemu-xbzrle"}, true, false, true, true},
		{migration.Plan{Transfer: "qemu-tcp", Insecure: true}, true, true, true, false},
		{migration.Plan{Transfer: "qemu-tcp", Mode: "stopcopy"}, false, false, true, true},
		{migration.Plan{Transfer: "qemu-mptcp", Mode: "stopcopy"}, false, true, true, false},
	} {
		c.plan.ID, c.plan.Guest, c.plan.From, c.plan.To, c.plan.Bandwidth = "m-00000001", "web", "paris", "rome", 8e6
		a := bareAgent(t, &config.Config{Host: "paris"})
		a.ctx = t.Context()
		machine := &askedToSend{gone: gone{done: make(chan struct{})}}
		m := &outgoing{a: a, guest: guests.New(care.Held{}, machine), plan: c.plan, work: &sourceWork{}, rec: record.New("paris", c.plan, time.Now())}
		m.work.prepared.Memory = "tcp:192.0.2.1:4444"
		m.bandwidth.Set(c.plan.Bandwidth)
		err := m.beginCopy(t.Context(), nil)
		m.endLanes()
		m.work.farewells.Wait()
		o := machine.opts
		if !errors.Is(err, errAsked) || o.LooksAtOnce != c.looks || o.KeepsLimit != c.keeps || o.MaxBandwidth > 0 != c.limited {
			t.Errorf("%s %s: %v, looks at once %v, keeps the limit %v, of %d", c.plan.Transfer, c.plan.Mode, err, o.LooksAtOnce, o.KeepsLimit, o.MaxBandwidth)
		}
		if passed := o.URI != m.work.prepared.Memory; passed != c.passed || (o.Looks == nil) != c.passed {
			t.Errorf("%s %s: sends to %s, is let take more: %v", c.plan.Transfer, c.plan.Mode, o.URI, o.Looks != nil)
		}
	}
}
