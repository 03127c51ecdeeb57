package agent

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"godwit/agent/capable"
	"godwit/agent/care"
	"godwit/agent/config"
	"godwit/agent/guests"
	"godwit/agent/outside"
	"godwit/agent/record"
	"godwit/migration"
	"godwit/vm"
	"godwit/vm/guest"
)

// TestSilentGuests: descriptions and moves of guests in which nobody can be asked.
func TestSilentGuests(t *testing.T) {
	d := config.Description{Name: "web", Memory: 256 << 20, Agent: "dhcp", NICs: []config.NIC{{MAC: "52:54:00:00:01:0a"}, {MAC: "52:54:00:00:01:0b"}}}
	if err := d.Check(); err != nil {
		t.Error(err)
	}
	if err := d.CheckStarted([]string{"debian12"}); err == nil || !strings.Contains(err.Error(), "no client of DHCP") {
		t.Errorf("the image tiny: %v", err)
	}
	d.Image = "debian12"
	if err := d.CheckStarted([]string{"debian12"}); err != nil {
		t.Error(err)
	}
	if d.Run = []string{"cpu"}; d.CheckStarted([]string{"debian12"}) == nil {
		t.Error("workloads in a guest that cannot be told of them")
	}
	if d.Channel = "/run/web/guest.sock"; d.Check() == nil {
		t.Error("a channel that nobody answers on")
	}
	held := care.Held{Description: config.Description{Name: "web", Agent: "dhcp"}, Taps: []string{"a", "b"}}
	refuse := func(code migration.Code, format string, _ ...any) error {
		return &migration.Problem{Code: code, Text: format}
	}
	for text, want := range map[string]bool{"10.2.1.10/24": true, "10.2.1.10/24 fd00::10/64": true, "10.2.1.10/24 10.1.1.50/24": false} {
		held.Addresses = nil
		for _, p := range strings.Fields(text) {
			held.Addresses = append(held.Addresses, migration.Address{Prefix: netip.MustParsePrefix(p)})
		}
		err := capable.Leaver{Held: held, Channel: true, Facts: vm.Facts{Version: "10.0.0"}, Status: vm.Running}.Unfit(refuse)
		if (err == nil) != want {
			t.Errorf("with %s: %v", text, err)
		}
	}
}

// TestSilentGuestIsNotAwaited: a copy does not wait for the counter of a guest in which nobody counts.
func TestSilentGuestIsNotAwaited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := guests.New(care.Held{}, nil)
		g.SpeakBy(outside.New(outside.Config{}))
		m := &outgoing{a: &Agent{ctx: t.Context()}, guest: g, work: &sourceWork{}, rec: record.New("paris", migration.Plan{}, time.Now())}
		begun := time.Now()
		err := m.followTicks(t.Context())
		if took := time.Since(begun); took > 0 || !errors.Is(err, guest.ErrUnsupported) {
			t.Errorf("after %v: %v", took, err)
		}
		if m.work.endTicks != nil {
			m.work.endTicks()
		}
		if err := g.Channel().Ticks(t.Context(), 0); err != nil {
			t.Errorf("nobody need count: %v", err)
		}
	})
}

// TestSilentGuestsAreLookedAt: others look at a guest in which nobody can be asked, as at which addresses are taken,
// while it boots, or while a handover changes what it has. (The race detector tells.)
func TestSilentGuestsAreLookedAt(t *testing.T) {
	a := &Agent{config: &config.Config{}, guests: guests.In(t.TempDir()), log: slog.New(slog.DiscardHandler)}
	g := guests.New(care.Held{Description: config.Description{Name: "web", Agent: config.AgentDHCP, NICs: []config.NIC{{MAC: "52:54:00:00:01:0a"}, {MAC: "52:54:00:00:01:0b"}}}}, nil)
	six, four := migration.Address{Prefix: netip.MustParsePrefix("fd00::10/64")}, migration.Address{Prefix: netip.MustParsePrefix("10.2.1.10/24")}
	a.guests.ExpectAgain(g)
	a.guests.GiveAddresses(g, []migration.Address{six, four})
	off, cancel := context.WithCancel(t.Context())
	cancel()
	var others sync.WaitGroup
	look := func() {
		for range 100 {
			if a.guests.Expected()[four.Prefix.Addr()] != "web" {
				t.Error("its address is free")
			}
		}
	}
	others.Go(look)
	if err := a.grantFirst(off, g); err == nil {
		t.Error("it has its address without a tap")
	}
	if has := g.Held().Addresses; len(has) != 1 || has[0].Prefix != four.Prefix || !has[0].Granted {
		t.Errorf("it was given %v", has)
	}
	others.Go(look)
	others.Go(func() { g.Remember(func(h *care.Held) { h.Active = 1 }) })
	if _, err := g.Channel().Info(t.Context()); err != nil {
		t.Error(err)
	}
	others.Wait()
}
