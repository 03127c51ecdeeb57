package lab

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"godwit/migration"
)

// TestArrive: what is on its way when traffic has ended is waited for, what is lost not long.
func TestArrive(t *testing.T) {
	for name, c := range map[string]struct {
		missing []int64 // at each look; the last goes on
		looks   int
	}{
		"nothing":                  {[]int64{0}, 1},
		"it arrives":               {[]int64{59, 59, 12, 12, 12, 12, 1, 0}, 8},
		"some of it was lost":      {[]int64{59, 3}, 7},
		"all of it was lost":       {[]int64{3}, 6},
		"it would arrive for ever": {slices.Repeat([]int64{0}, 40), 34},
	} {
		if name == "it would arrive for ever" {
			for i := range c.missing {
				c.missing[i] = int64(100 - i)
			}
		}
		synctest.Test(t, func(t *testing.T) {
			looks := 0
			arrive(func() int64 {
				looks++
				return c.missing[min(looks, len(c.missing))-1]
			})
			if looks != c.looks {
				t.Errorf("%s: %d looks, want %d", name, looks, c.looks)
			}
		})
	}
}

func TestDropped(t *testing.T) {
	first, second := netip.MustParseAddr("10.1.1.10"), netip.MustParseAddr("10.2.1.10")
	of := func(toGuest, fromGuest int64) map[netip.Addr]flowCount {
		return map[netip.Addr]flowCount{first: {toGuest, fromGuest}}
	}
	read := func(at, toGuest, fromGuest int64) balance {
		return balance{guest: "web", at: time.Unix(0, at), missing: of(toGuest, fromGuest)}
	}
	both := func(at, toGuest, fromGuest, toSecond, fromSecond int64) balance {
		b := read(at, toGuest, fromGuest)
		b.missing[second] = flowCount{toSecond, fromSecond}
		return b
	}
	links := func(at, missing, byLinks int64) balance {
		return balance{guest: "web", at: time.Unix(0, at), missing: of(missing, 0), byLinks: byLinks}
	}
	failed := func(at int64) balance {
		return balance{guest: "web", at: time.Unix(0, at), err: errors.New("no answer")}
	}
	booted := func(at, missing int64) balance {
		return balance{guest: "web", at: time.Unix(0, at), missing: of(missing, 0), boot: 1}
	}
	bootedLinks := func(at, fromGuest, byLinks int64) balance {
		return balance{guest: "web", at: time.Unix(0, at), missing: of(0, fromGuest), byLinks: byLinks, boot: 1}
	}
	others := balance{guest: "db", at: time.Unix(0, 900), missing: of(7, 7)}
	for _, c := range []struct {
		name     string
		balances []balance
		want     int64
		err      string
	}{
		{"lost in the window", []balance{read(50, 0, 0), read(250, 4, 1)}, 5, ""},
		{"lost before it", []balance{read(50, 2, 1), read(250, 2, 1)}, 0, ""},
		{"lost before and in it", []balance{read(50, 2, 0), read(250, 2, 3)}, 3, ""},
		{"packets on their way only add: the least counts", []balance{read(20, 9, 0), read(50, 1, 0), read(80, 8, 0), read(210, 30, 0), read(250, 3, 0), read(290, 8, 0)}, 2, ""},
		{"what is read inside the window bounds what was lost before it", []balance{read(50, 1, 0), read(150, 0, 0), read(250, 2, 0)}, 2, ""},
		{"on their way at both ends, and one is lost at last", []balance{read(50, 40, 0), read(250, 140, 0), read(900, 1, 0)}, 0, ""},
		{"on their way to the guest before it, and one from it is lost", []balance{read(50, 3, 0), read(250, 7, 1), read(900, 0, 1)}, 1, ""},
		{"on their way by one address, and one by the next is lost", []balance{read(50, 3, 5), both(250, 0, 0, 7, 9), both(900, 0, 0, 1, 2)}, 3, ""},
		{"the same, but links drop some", []balance{read(50, 3, 0), links(250, 8, 1), read(900, 0, 1)}, 0, ""},
		{"one was lost, in the window", []balance{read(50, 0, 0), read(250, 140, 0), read(900, 1, 0)}, 1, ""},
		{"at the window's edges", []balance{read(100, 1, 0), read(200, 3, 0)}, 2, ""},
		{"all came at last: none was lost", []balance{read(50, 0, 0), read(250, 40, 2), read(900, 0, 0)}, 0, ""},
		{"all of it by links", []balance{read(50, 0, 0), links(250, 40, 30), links(290, 41, 41)}, 0, ""},
		{"some of it by links", []balance{links(50, 9, 9), links(250, 44, 40)}, 4, ""},
		{"before the window by a host, in it by links", []balance{links(50, 3, 0), links(250, 10, 7)}, 0, ""},
		{"links dropped what is no client's, and a host lost some", []balance{links(50, 0, 6), links(250, 10, 6)}, 10, ""},
		{"of that, some in the window", []balance{links(50, 0, 0), links(150, 0, 6), links(250, 10, 8)}, 8, ""},
		{"less than nothing, but no link dropped anything", []balance{read(50, -3, 0), read(250, -1, 0)}, 2, ""},
		{"nothing was read before", []balance{read(250, 4, 0)}, 4, ""},
		{"less than before", []balance{read(50, 5, 0), read(250, 3, 0)}, 0, ""},
		{"a reading that failed does not count", []balance{read(50, 0, 0), read(250, 40, 0), failed(270), read(900, 2, 0)}, 2, ""},
		{"gone while packets were on their way", []balance{read(50, 0, 0), read(250, 2, 0), failed(900)}, 0, "2 at most"},
		{"gone, but all had come", []balance{read(50, 0, 0), read(250, 0, 0), failed(900)}, 0, ""},
		{"other guests do not count", []balance{read(50, 0, 0), read(250, 2, 0), others}, 2, ""},
		{"nothing was read after", []balance{read(50, 1, 0), read(150, 1, 0)}, 0, "could not be compared once it was over"},
		{"nothing could be read after", []balance{read(50, 1, 0), read(150, 1, 0), failed(250)}, 0, "could not be compared once it was over: no answer"},
		{"booted again in the window", []balance{read(50, 0, 0), booted(250, 4000)}, 0, "started again, and its counters began anew"},
		{"booted again before it", []balance{read(20, 0, 0), booted(50, 4000), booted(250, 4002)}, 2, ""},
		{"booted again after it", []balance{read(50, 0, 0), read(250, 1, 0), booted(900, 4000)}, 0, "1 at most"},
		{"booted again after it, when all had come", []balance{read(50, 0, 0), read(250, 0, 0), booted(900, 4000)}, 0, ""},
		{"booted again before it, and links drop some in it", []balance{bootedLinks(50, -4000, 3), bootedLinks(250, -3995, 8)}, 0, ""},
		{"the same, and a host lost one", []balance{bootedLinks(50, -4000, 3), bootedLinks(250, -3994, 8)}, 1, ""},
		{"the same, but some were on their way as it was booted", []balance{bootedLinks(20, -4000, 0), bootedLinks(50, -4002, 3), bootedLinks(250, -3994, 8)}, 0, "at most"},
		{"nothing was read", []balance{others}, 0, "could not be compared"},
		{"every reading failed", []balance{failed(50), failed(250)}, 0, "no answer"},
	} {
		r := &run{balances: c.balances}
		got, err := r.dropped("web", 100, 200)
		if got != c.want || (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) {
			t.Errorf("%s: %d, %v; want %d %s", c.name, got, err, c.want, c.err)
		}
	}
}

// TestBalanceBetweenMoves: edges and guests are compared as soon as a handover is done, not only once a second.
func TestBalanceBetweenMoves(t *testing.T) {
	r := aRun()
	r.handed = make(chan struct{}, 1)
	for _, phase := range []migration.Phase{migration.Copy, migration.Settle} {
		r.phaseBegan(t.Context(), &move{guest: "web"}, phase, time.Now())
		ctx, cancel := context.WithTimeout(t.Context(), balanceEvery/5)
		if got, want := r.untilBalance(ctx), phase == migration.Settle; got != want {
			t.Errorf("%s: compared soon: %v, want %v", phase, got, want)
		}
		cancel()
	}
}
