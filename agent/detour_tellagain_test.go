package agent

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"godwit/agent/care"
	"godwit/agent/limits"
	"godwit/agent/record"
	"godwit/internal/clock"
	"godwit/migration"
	"godwit/vm/guest"
)

// tellsAgain is the channel of a guest that is asked to tell clients again.
type tellsAgain struct {
	listed
	asked *[]guest.TellAgain
	joins *guest.Joins
	err   *error
}

func (c tellsAgain) TellAgain(_ context.Context, p guest.TellAgain) (guest.Joins, error) {
	*c.asked = append(*c.asked, p)
	return *c.joins, *c.err
}

func (c tellsAgain) Info(context.Context) (guest.Info, error) {
	return guest.Info{Capabilities: []string{guest.CapTellAgain}}, nil
}

func (c tellsAgain) Users(context.Context, ...netip.Addr) (guest.Users, error) {
	return guest.Users{MPTCP: 1}, nil
}

// TestClientsAreToldAgain: while a lease runs, a guest is asked at each look whether something was heard of clients that
// were out of reach in its handover; once it told some, for a while not, and never when each was told, or as it moves on.
func TestClientsAreToldAgain(t *testing.T) {
	old, next, away, plain := netip.MustParseAddrPort("10.1.1.20:80"), netip.MustParseAddrPort("10.2.1.20:80"), netip.MustParseAddrPort("198.18.0.9:4000"), netip.MustParseAddrPort("198.18.0.9:4001")
	one := guest.Connection{Kind: guest.KindMPTCP, Local: old, Remote: away, Working: []netip.AddrPort{old}}
	other := guest.Connection{Kind: guest.KindTCP, Local: old, Remote: plain}
	synctest.Test(t, func(t *testing.T) {
		a, g, placed := leasing(t)
		d := *placed // just up: it is looked after at each look
		g.Remember(func(h *care.Held) {
			h.Endpoint = 3
			h.Addresses = []migration.Address{{Prefix: netip.PrefixFrom(next.Addr(), 24), Home: a.config.Host, Handover: d.ID, Endpoint: 3}, {Prefix: netip.PrefixFrom(old.Addr(), 24), Home: "paris"}}
		})
		c := tellsAgain{listed{datagrams{forgetful{silent: new(bool), dropped: new([]netip.Addr)}, map[netip.Addr]uint64{}}, []guest.Connection{one, other}}, new([]guest.TellAgain), new(guest.Joins), new(error)}
		g.SpeakBy(c)
		all := guest.Connections{List: c.all}
		rec := a.records.Find(d.ID)
		s := record.Judge{Held: []netip.Addr{old.Addr()}, Next: []netip.Addr{next.Addr()}, Kept: true, Joins: &guest.Joins{Unable: []guest.Unable{{Remote: away, Why: guest.WhyAway}}}}.Survive(all, all)
		rec.Edit(func(r *record.Report) {
			r.Survival, r.Network, r.Handed, r.Next = s, "mptcp", rec.Now(), g.Held().Addresses[:1]
		})
		look := func(when string, asks bool, since time.Duration) {
			t.Helper()
			before := len(*c.asked)
			if err := a.lookAtVisitor(t.Context(), g, d, false); err != nil || len(*c.asked) > before {
				t.Fatalf("%s: %v; asked %d times by a look that must not wait for it", when, err, len(*c.asked)-before)
			}
			l := &looks{}
			a.lookWhoIsBack(t.Context(), l)
			l.all.Wait()
			new := (*c.asked)[before:]
			if len(new) > 1 || (len(new) == 1) != asks {
				t.Fatalf("%s: asked %d times", when, len(new))
			}
			if asks && (!slices.Equal(new[0].Away, []netip.AddrPort{away}) || !slices.Equal(new[0].Addrs, []netip.Addr{next.Addr()}) || !slices.Equal(new[0].Old, []netip.Addr{old.Addr()}) ||
				new[0].SinceMS != since.Milliseconds() || len(new[0].SpareIDs) != 1) {
				t.Errorf("%s: %+v", when, new[0])
			}
			time.Sleep(time.Second)
		}
		time.Sleep(10 * time.Second)
		look("nothing was heard", true, 10*time.Second+handoverTells)
		look("nothing was heard yet", true, 11*time.Second+handoverTells)
		if g.Held().Endpoint != 3 {
			t.Errorf("endpoint %d is used up by nothing", g.Held().Endpoint)
		}
		if err := g.Take("m-00000002"); err != nil {
			t.Fatal(err)
		}
		look("as it moves", false, 0)
		g.Drop("m-00000002")
		*c.joins = guest.Joins{Total: 1, Endpoints: []uint8{5}, Unable: []guest.Unable{{Remote: away, Why: guest.WhyAway}}}
		look("it was away again", true, 13*time.Second+handoverTells)
		if g.Held().Endpoint != 5 {
			t.Errorf("the last endpoint is %d", g.Held().Endpoint)
		}
		look("just told", false, 0)
		time.Sleep(10 * time.Second)
		*c.err = errors.New("its program was started again")
		look("told a while ago", true, 10*time.Second)
		if g.Held().Endpoint != 7 {
			t.Errorf("what may be used up is used again: %d", g.Held().Endpoint)
		}
		*c.err, c.joins.Endpoints, c.joins.Unable[0].Why = nil, []uint8{9}, guest.WhyUnjoined(againWithin)
		time.Sleep(time.Minute)
		look("it takes no address", true, time.Minute-time.Second)
		if why := rec.Snapshot().Survival.Connections[0].Why; why != guest.WhyAway {
			t.Errorf("what it was told may be lost, and the report says %q", why)
		}
		time.Sleep(time.Minute)
		look("it takes no address this time either", true, time.Minute-time.Second)
		if why := rec.Snapshot().Survival.Connections[0].Why; why != guest.WhyUnjoined(againWithin) {
			t.Errorf("the report says %q", why)
		}
		time.Sleep(time.Hour)
		look("all were told", false, 0)
	})
}

// cannotTell is one without our program, or with that of before.
type cannotTell struct{ tellsAgain }

func (cannotTell) Info(context.Context) (guest.Info, error) { return guest.Info{}, nil }

// TestNobodyIsToldAgain: not by who cannot, nor where that many more would be told, nor as the lease ends.
func TestNobodyIsToldAgain(t *testing.T) {
	old, next, away := netip.MustParseAddrPort("10.1.1.20:80"), netip.MustParseAddr("10.2.1.20"), netip.MustParseAddrPort("198.18.0.9:4000")
	for name, c := range map[string]struct {
		cannot bool
		moved  int
		left   time.Duration
		want   int
	}{
		"told":                         {moved: againCrowd, left: time.Minute, want: 1},
		"a guest that cannot":          {cannot: true, left: time.Minute},
		"a crowd has followed":         {moved: againCrowd + 1, left: time.Minute},
		"the lease is as good as over": {left: limits.TellAgain.For - time.Second},
	} {
		a, g, d := leasing(t)
		g.Remember(func(h *care.Held) {
			h.Addresses = []migration.Address{{Prefix: netip.PrefixFrom(next, 24), Handover: d.ID}, {Prefix: netip.PrefixFrom(old.Addr(), 24), Home: "paris"}}
		})
		channel := tellsAgain{asked: new([]guest.TellAgain), joins: new(guest.Joins), err: new(error)}
		if g.SpeakBy(channel); c.cannot {
			g.SpeakBy(cannotTell{channel})
		}
		rec := a.records.Find(d.ID)
		rec.Edit(func(r *record.Report) {
			r.Handed, r.Survival = rec.Now(), &record.Survival{Moved: c.moved, Tunnelled: 1, Connections: []record.Survivor{{Kind: guest.KindMPTCP, Local: old, Remote: away, Fate: migration.Tunnelled, Why: guest.WhyAway}}}
		})
		d.Until = clock.Now().Add(c.left)
		if err := a.tellAgain(t.Context(), g, *d); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if len(*channel.asked) != c.want || g.Held().Endpoint != 0 {
			t.Errorf("%s: asked %d times; endpoint %d", name, len(*channel.asked), g.Held().Endpoint)
		}
	}
}
