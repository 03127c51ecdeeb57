package agent

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"godwit/agent/addresses"
	"godwit/agent/config"
	"godwit/agent/detour"
	"godwit/agent/hook"
	"godwit/agent/record"
	"godwit/agent/statefile"
	"godwit/migration"
	"godwit/netstate/tunnel"
)

// TestOwnEndAnew: a home's end of a tunnel takes the place of one that an earlier agent made there and did not live to write
// down, with another key.
func TestOwnEndAnew(t *testing.T) {
	hostWithTunnels(t, func(ctx context.Context, a *Agent) error {
		at := func(addr string) []config.Uplink {
			return []config.Uplink{{Name: "public", Address: netip.MustParseAddr(addr), Carries: "both"}}
		}
		a.config.Uplinks, a.config.Peers = at("127.0.0.1"), []config.Neighbour{{Host: "oslo", Site: "oslo", Uplinks: at("127.0.0.2")}}
		a.config.Network.MTU = 1400
		ask := goodRepoint()
		for port := uint16(700); port < 702; port++ {
			_, public, err := tunnel.NewKey()
			if err != nil {
				return err
			}
			ask.TunnelKey, ask.Tunnel = public, netip.AddrPortFrom(netip.MustParseAddr("127.0.0.2"), port)
			end, err := a.ownEnd(ctx, ask, "oslo")
			if err != nil {
				return err
			}
			defer tunnel.Down(context.Background(), end.Dir, end.Name) //nolint:errcheck // it goes with the namespace
			made, err := tunnel.Attach(ctx, end.Dir, end.Name)
			if err != nil || made.PeerKey != public || made.Remote != ask.Tunnel {
				return fmt.Errorf("%+v, %w", made, err)
			}
		}
		return nil
	})
}

// TestLeaseEndsAfterRestart: the end of a lease of an earlier agent's life is told to hooks as it would have been by
// that agent, and to all else that hears of events.
func TestLeaseEndsAfterRestart(t *testing.T) {
	a, client := counting(t)
	a.config.State = t.TempDir()
	a.records, a.book = noRecords(a.config), addresses.New(a.config, a.takenAddresses)
	old, next := migration.Address{Prefix: netip.MustParsePrefix("10.2.1.20/24")}, migration.Address{Prefix: netip.MustParsePrefix("10.1.1.20/24")}
	rep := record.NewReport(migration.Plan{ID: "m-00000001", Epoch: 7, Guest: "web", From: "rome", To: "paris", Network: "mptcp"}, 1)
	rep.Outcome, rep.Ended, rep.Old, rep.Next = migration.Completed, 5, []migration.Address{old}, []migration.Address{next}
	if err := statefile.Write(a.config.StatePath("history", "m-00000001-destination.json"), rep); err != nil {
		t.Fatal(err)
	}
	lb, err := a.hooks.Subscribe(hook.Subscription{Name: "lb", Events: []migration.EventName{migration.LeaseEnded}})
	if err != nil {
		t.Fatal(err)
	}
	defer lb.Close()
	reader := a.feed.join()
	d := &detour.Detour{ID: "m-00000001-rome", Guest: "web", Peer: "rome", Leased: true}
	a.detours = detour.New(a.config.StatePath("detours.json"), a.config.Network, map[string]*detour.Detour{d.ID: d})
	a.endDetour(t.Context(), *d) //nolint:errcheck // what of it is in the kernel is not the test's
	c := (<-lb.Calls()).Call
	if c.Role != migration.AtDestination || c.Host != "paris" || !slices.Equal(c.Old, migration.Bare(rep.Old)) || !slices.Equal(c.Next, migration.Bare(rep.Next)) ||
		c.Plan.ID != rep.ID || c.Plan.Guest != "web" || c.Plan.From != "rome" || c.Plan.Epoch != 7 {
		t.Errorf("the hook was told %+v", c)
	}
	if len(reader.events) != 1 {
		t.Fatalf("%d events in the feed", len(reader.events))
	}
	if e := <-reader.events; e.Migration != rep.ID || e.Guest != "web" || e.Name != migration.LeaseEnded || e.Kind != "event" || e.Host != "paris" || e.At == 0 {
		t.Errorf("%+v in the feed", e)
	}
	metricsAre(t, client, map[string]float64{`godwit_events_total{event="LEASE_ENDED"}`: 1})
	if rep, _ := a.records.Report(rep.ID); rep.TunnelDown == 0 {
		t.Error("it is not written down")
	}
}
