package boots

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"godwit/agent/care"
	"godwit/agent/config"
	"godwit/agent/guests"
	"godwit/agent/handed"
	"godwit/migration"
	"godwit/vm/guest"
)

// TestBootsAnew: a guest that reboots after a handover is given again what it had by that, as soon as it answers, also
// where its own services set their address later, and for good when it has settled; nothing is asked of it after that.
func TestBootsAnew(t *testing.T) {
	for name, c := range map[string]struct {
		addresses []migration.Address
		want      string
		kept      bool
	}{
		"its own address is another's by now": {[]migration.Address{givenAddress()}, " | 10.2.1.20", false},
		"it keeps the old one for a while":    {[]migration.Address{givenAddress(), keptAddress()}, " | 10.1.1.20 10.2.1.20", true},
	} {
		synctest.Test(t, func(t *testing.T) {
			k, g, in, lines := movedGuest(t, c.addresses...)
			ctx, end := context.WithCancel(t.Context())
			go k.Keep(ctx)
			time.Sleep(time.Hour)
			if asked, _ := in.told(); len(asked) > 0 {
				t.Errorf("%s: it did not boot, and was asked to %+v", name, asked)
			}
			in.boots("second", 29*time.Second) // at 30 s it is asked: by chance it would answer that, or not
			time.Sleep(8 * time.Second)
			if got := in.has(); got != c.want {
				t.Errorf("%s: just booted it has %q, want %q", name, got, c.want)
			}
			asked, retired := in.told()
			if first := asked[0]; first.MAC != bootMACs[1] || !first.Main || first.Table != guest.FirstTable+1 || first.Endpoint != 3 || first.GatewayV4.String() != "10.2.1.1" || len(first.Addrs) != 1 {
				t.Errorf("%s: %+v", name, first)
			}
			if last := retired[len(retired)-1]; last.Keep != c.kept || last.Stay || last.MAC != bootMACs[0] || last.GatewayV4.IsValid() != c.kept {
				t.Errorf("%s: its old NIC was left so: %+v", name, last)
			}
			in.configuresItself()
			time.Sleep(40 * time.Second)
			if got := in.has(); got != c.want {
				t.Errorf("%s: its services have set their address, and it has %q, want %q", name, got, c.want)
			}
			time.Sleep(5 * time.Minute)
			if h := onDisk(t, k); h.Boot != "second" || h.Addresses[0].Endpoint != 5 {
				t.Errorf("%s: remembered: boot %q, %+v", name, h.Boot, h.Addresses)
			}
			before, _ := in.told()
			time.Sleep(time.Hour)
			after, _ := in.told()
			if rep, _, _ := k.Records.History("m-00000001"); len(after) != len(before) || len(before) > 10 || len(rep.Notes) != 2 || !strings.HasSuffix(rep.Notes[1], "has its address again") || g.Booted() != rep.Notes[1] {
				t.Errorf("%s: asked %d times, then %d; %q", name, len(before), len(after), rep.Notes)
			}
			if lines.count("WARN") > 0 {
				t.Errorf("%s: %s", name, lines.all.String())
			}
			in.boots("third", time.Second) // its QEMU says so: nobody waits for the next question
			time.Sleep(2 * bootPause)
			if rep, _, _ := k.Records.History("m-00000001"); in.has() != c.want || len(rep.Notes) != 2 || rep.Notes[1] != g.Booted() {
				t.Errorf("%s: booted once more it has %q, and %q is said", name, in.has(), rep.Notes)
			}
			end()
			synctest.Wait()
		})
	}
}

// TestBootsOfAnother: a guest that comes later is looked after, too, and one that has what it is to have by its own
// configuration is given it all the same: nobody sees from outside how it sends.
func TestBootsOfAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k, g, in, _ := movedGuest(t, givenAddress())
		if err := k.Guests.Forget(g); err != nil {
			t.Fatal(err)
		}
		ctx, end := context.WithCancel(t.Context())
		go k.Keep(ctx)
		time.Sleep(time.Hour)
		keep(t, k, g)
		time.Sleep(time.Minute)
		in.boots("second", 0)
		in.change(func(b *bootable) { b.nics = [2]map[netip.Addr]bool{{}, {netip.MustParseAddr("10.2.1.20"): true}} })
		time.Sleep(10 * time.Second)
		if asked, _ := in.told(); len(asked) != 1 {
			t.Errorf("asked %+v", asked)
		}
		end()
		synctest.Wait()
	})
}

// TestBootedWhileTheAgentWasAway: a later agent finds it out, and one that comes to it in the middle goes on.
func TestBootedWhileTheAgentWasAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k, _, in, _ := movedGuest(t, givenAddress())
		in.resets = nil
		in.boots("second", time.Hour)
		for _, lives := range []time.Duration{4 * time.Second, time.Minute} { // the first ends before it has made sure
			ctx, end := context.WithCancel(t.Context())
			go k.Keep(ctx)
			time.Sleep(lives)
			if end(); in.has() != " | 10.2.1.20" {
				t.Errorf("after %v it has %q", lives, in.has())
			}
			synctest.Wait()
		}
		if h := onDisk(t, k); h.Boot != "second" {
			t.Errorf("remembered: boot %q", h.Boot)
		}
	})
}

// TestBootsLeftAlone: a guest whose own configuration is right, or which is in a migration's hands, is asked nothing.
func TestBootsLeftAlone(t *testing.T) {
	own := keptAddress()
	for name, c := range map[string]struct {
		addr   migration.Address
		change func(*guests.Guest)
		comes  bool // a migration brings it
		asks   bool // afterwards
	}{
		"it has its home's address": {addr: own},
		"it cannot be asked": {addr: givenAddress(), change: func(g *guests.Guest) {
			g.Remember(func(h *care.Held) { h.Description.Agent = config.AgentDHCP })
		}},
		"it has one NIC": {addr: givenAddress(), change: func(g *guests.Guest) {
			g.Remember(func(h *care.Held) { h.Active, h.Description.NICs = 0, h.Description.NICs[:1] })
		}},
		"an agent started it":              {addr: givenAddress(), change: func(g *guests.Guest) { g.Remember(func(h *care.Held) { h.Description.Start = nil }) }},
		"it moves":                         {addr: givenAddress(), change: func(g *guests.Guest) { g.Take("m-00000002") }, asks: true},
		"its migration here has not ended": {addr: givenAddress(), comes: true, asks: true},
		"its boot was not known":           {addr: givenAddress(), change: func(g *guests.Guest) { g.Remember(func(h *care.Held) { h.Boot = "" }) }},
	} {
		synctest.Test(t, func(t *testing.T) {
			k, g, in, lines := movedGuest(t, c.addr)
			if c.change != nil {
				c.change(g)
			}
			var coming atomic.Bool
			coming.Store(c.comes)
			k.Coming = func(guest string) bool { return guest == "web" && coming.Load() }
			ctx, end := context.WithCancel(t.Context())
			go k.Keep(ctx)
			in.boots("second", 10*time.Second)
			time.Sleep(5 * time.Minute)
			if asked, retired := in.told(); len(asked)+len(retired) > 0 || lines.count("WARN") > 0 {
				t.Errorf("%s: asked %+v; %s", name, asked, lines.all.String())
			}
			in.change(func(b *bootable) {
				if b.infos > 0 && c.asks {
					t.Errorf("%s: it was disturbed %d times", name, b.infos)
				}
			})
			g.Drop("m-00000002")
			coming.Store(false)
			time.Sleep(5 * time.Minute)
			if asked, _ := in.told(); len(asked) > 0 != c.asks {
				t.Errorf("%s: then asked: %+v, want any: %v", name, asked, c.asks)
			}
			end()
			synctest.Wait()
		})
	}
}

// TestBootsInVain: a guest that does not take its address again is asked for a while only, and that is said once.
func TestBootsInVain(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*bootable)
		want   string
		asked  int // at least
	}{
		"it refuses":       {func(b *bootable) { b.err = errors.New("no such NIC") }, "set its address: no such NIC; set it in the guest, or move it", 5},
		"it undoes it":     {func(b *bootable) { b.undone = func(b *bootable) { clear(b.nics[1]) } }, "something in it takes away what it is given", 5},
		"it never answers": {func(b *bootable) { b.silent = true }, "it does not answer: ", 0},
	} {
		synctest.Test(t, func(t *testing.T) {
			k, g, in, lines := movedGuest(t, givenAddress())
			ctx, end := context.WithCancel(t.Context())
			go k.Keep(ctx)
			in.boots("second", 0)
			in.change(c.change)
			time.Sleep(time.Hour)
			asked, _ := in.told()
			time.Sleep(time.Hour)
			if more, _ := in.told(); len(more) != len(asked) || len(asked) < c.asked || len(asked) > 40 {
				t.Errorf("%s: asked %d times, then %d", name, len(asked), len(more))
			}
			next, leave := context.WithCancel(ctx) // an agent that is started again
			go k.Keep(next)
			time.Sleep(time.Hour)
			if more, _ := in.told(); len(more) != len(asked) {
				t.Errorf("%s: by the next agent it is given %d times more", name, len(more)-len(asked))
			}
			leave()
			rep, _, _ := k.Records.History("m-00000001")
			if n := lines.count("WARN"); n < 1 || n > 2 || n == 2 && c.asked > 0 || !strings.Contains(g.Booted(), c.want) || rep.Notes[len(rep.Notes)-1] != g.Booted() {
				t.Errorf("%s: %q, %q; want %q\n%s", name, g.Booted(), rep.Notes, c.want, lines.all.String())
			}
			in.change(func(b *bootable) { b.err, b.undone = nil, nil })
			in.boots("third", 10*time.Second)
			if time.Sleep(time.Minute); in.has() != " | 10.2.1.20" {
				t.Errorf("%s: at its next boot it has %q", name, in.has())
			}
			end()
			synctest.Wait()
		})
	}
}

// TestBootsAndMovesForLong: of one that has its address again, and moves for longer than is had patience, nothing is
// said to be in vain; nor of one that did not take it before that.
func TestBootsAndMovesForLong(t *testing.T) {
	for _, refused := range []error{nil, errors.New("no such NIC")} {
		synctest.Test(t, func(t *testing.T) {
			k, g, in, lines := movedGuest(t, givenAddress())
			ctx, end := context.WithCancel(t.Context())
			go k.Keep(ctx)
			in.change(func(b *bootable) { b.err = refused })
			in.boots("second", time.Second)
			time.Sleep(20 * time.Second)
			before, _ := in.told()
			if err := g.Take("m-00000002"); err != nil || len(before) == 0 {
				t.Fatal(err, before)
			}
			time.Sleep(2 * bootPatience)
			in.change(func(b *bootable) { b.err = nil })
			g.Drop("m-00000002")
			time.Sleep(10 * time.Minute)
			if lines.count("WARN") > 0 || g.Held().Boot != "second" || in.has() != " | 10.2.1.20" {
				t.Errorf("%v: boot %q, %q; %s", refused, g.Held().Boot, in.has(), lines.all.String())
			}
			end()
			synctest.Wait()
		})
	}
}

// TestGivesAgainBeforeItMoves: what a guest is given when it has booted anew, and a migration that is asked for
// meanwhile, do not meet.
func TestGivesAgainBeforeItMoves(t *testing.T) {
	k, g, in, _ := movedGuest(t, givenAddress())
	if err := g.Take("m-00000002"); err != nil {
		t.Fatal(err)
	}
	if err := k.giveAgain(t.Context(), g, guest.Info{}); !errors.Is(err, errMoves) || len(in.asked) > 0 {
		t.Errorf("it moves: %v, %+v", err, in.asked)
	}
	g.Drop("m-00000002")
	g.LockAddresses()
	done := make(chan error, 1)
	go func() { done <- k.giveAgain(t.Context(), g, guest.Info{}) }()
	select {
	case err := <-done:
		t.Errorf("it did not wait: %v", err)
	case <-time.After(20 * time.Millisecond):
	}
	g.UnlockAddresses()
	if err := <-done; err != nil || len(in.asked) != 1 {
		t.Errorf("%v, %+v", err, in.asked)
	}
}

// TestAnnouncedAgainByOtherIDs: a guest that was given its addresses again, and could not take the ids that it had, has
// others from then on, and later ones follow them: also where it began again with the first, as there are none behind.
func TestAnnouncedAgainByOtherIDs(t *testing.T) {
	v6 := givenAddress()
	v6.Prefix = netip.MustParsePrefix("fd02::20/64")
	for _, c := range []struct {
		had  [3]uint8 // of IPv4, of IPv6, and the last of all
		took []uint8
		has  [3]uint8
		next uint8
	}{
		{[3]uint8{3, 4, 4}, []uint8{3, 4}, [3]uint8{3, 4, 4}, 5},
		{[3]uint8{3, 4, 4}, []uint8{7, 8}, [3]uint8{7, 8, 8}, 9},
		{[3]uint8{3, 4, 12}, []uint8{7, 8}, [3]uint8{7, 8, 12}, 13},
		{[3]uint8{3, 4, 4}, []uint8{7}, [3]uint8{7, 4, 7}, 9},
		{[3]uint8{239, 240, 240}, []uint8{241, 242}, [3]uint8{241, 242, 242}, 1},
		{[3]uint8{239, 240, 240}, []uint8{1, 2}, [3]uint8{1, 2, 2}, 3},
		{[3]uint8{239, 240, 240}, []uint8{5}, [3]uint8{5, 240, 5}, 7},
		{[3]uint8{239, 240, 240}, nil, [3]uint8{239, 240, 240}, 1},
		{[3]uint8{3, 4, 4}, []uint8{0}, [3]uint8{3, 4, 4}, 5},
		{[3]uint8{0, 0, 4}, []uint8{7, 8}, [3]uint8{0, 0, 4}, 5}, // none is announced
	} {
		four, six, kept := givenAddress(), v6, keptAddress()
		four.Endpoint, six.Endpoint, kept.Endpoint = c.had[0], c.had[1], 1
		k, g, _, _ := movedGuest(t, four, six, kept)
		g.Remember(func(h *care.Held) { h.Endpoint = c.had[2] })
		if err := k.announcedAgain(g, c.took); err != nil {
			t.Fatal(err)
		}
		h := g.Held()
		if disk := onDisk(t, k); c.has != c.had && !slices.Equal(disk.Addresses, h.Addresses) || h.Addresses[2] != kept {
			t.Errorf("%v, and it took %v: on disk %+v, and it has %+v", c.had, c.took, disk.Addresses, h.Addresses)
		}
		if got := [3]uint8{h.Addresses[0].Endpoint, h.Addresses[1].Endpoint, h.Endpoint}; got != c.has || handed.NextEndpoint(h.Endpoint) != c.next {
			t.Errorf("%v, and it took %v: %v, and %d is next; want %v, and %d", c.had, c.took, got, handed.NextEndpoint(h.Endpoint), c.has, c.next)
		}
	}
}

// TestStrays: on its active NIC a guest may have other addresses of this site's subnet, unless another guest has them.
func TestStrays(t *testing.T) {
	k, g, in, _ := movedGuest(t, givenAddress())
	other := guests.New(care.Held{Description: config.Description{Name: "db"}, Addresses: []migration.Address{{Prefix: netip.MustParsePrefix("10.2.1.30/24")}}}, nil)
	keep(t, k, other)
	for _, addr := range []string{"10.2.1.30", "10.2.1.31", "10.1.1.20"} {
		in.nics[1][netip.MustParseAddr(addr)] = true
	}
	in.nics[0][netip.MustParseAddr("10.2.1.32")] = true
	info, err := in.Info(t.Context())
	if err != nil || k.asHanded(g.Held(), info) {
		t.Fatal("it has addresses that are not its own", err)
	}
	if err := k.giveAgain(t.Context(), g, info); err != nil {
		t.Fatal(err)
	}
	if info, _ = in.Info(t.Context()); in.has() != " | 10.2.1.20 10.2.1.31" || !k.asHanded(g.Held(), info) {
		t.Errorf("it has %q", in.has())
	}
}

// TestStraysBesideWhatIsKept: where it keeps an address, too.
func TestStraysBesideWhatIsKept(t *testing.T) {
	k, g, in, _ := movedGuest(t, givenAddress(), keptAddress())
	in.nics[1][netip.MustParseAddr("10.9.1.20")] = true
	info, err := in.Info(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := k.giveAgain(t.Context(), g, info); err != nil || in.has() != " | 10.1.1.20 10.2.1.20" {
		t.Errorf("it has %q, %v", in.has(), err)
	}
}

// TestNotItsOwn: what lies over a NIC has its MAC and addresses of its own, and of a family of which the site has no
// subnet the guest may have what it likes.
func TestNotItsOwn(t *testing.T) {
	k, g, in, _ := movedGuest(t, givenAddress())
	in.nics[1][netip.MustParseAddr("2001:db8::7")] = true
	info, err := in.Info(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, nic := range g.Held().Description.NICs {
		info.NICs = append(info.NICs, guest.NIC{Name: "over", MAC: nic.MAC, Up: true, Above: true, Addrs: []netip.Prefix{netip.MustParsePrefix("192.168.5.2/24")}})
	}
	if active, spare := k.strays(g.Held(), info); len(active)+len(spare) > 0 || !k.asHanded(g.Held(), info) {
		t.Errorf("to be taken: %v and %v", active, spare)
	}
}
