package traffic

import (
	"context"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"godwit/internal/need"
)

func TestProberSeesDroppedPackets(t *testing.T) {
	need.Lab(t)
	name, _ := guest(t)
	p, err := StartProber(context.Background(), name, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	old, next := netip.MustParseAddr("127.0.0.5"), netip.MustParseAddr("127.0.0.6")
	if err := p.SetTargets([]netip.Addr{old, next}); err != nil {
		t.Fatal(err)
	}
	begin := now()
	time.Sleep(300 * time.Millisecond)
	// One address alone silent: the other still answers.
	run(t, name, "nft", "add table ip t; add chain ip t in { type filter hook input priority 0; }; add rule ip t in ip daddr 127.0.0.5 udp dport 7007 drop")
	mute := now()
	one := downtimeOf(t, p, "with one address silent", begin+50e6, func(d time.Duration, at int64) bool {
		alone, _ := p.Silence([]netip.Addr{old}, mute, at, at)
		return 2*d < alone // by far, however long this machine stood still
	})
	run(t, name, "nft", "add rule ip t in udp dport 7007 drop")
	silent := now()
	time.Sleep(200 * time.Millisecond)
	least := time.Duration(now()-silent) - 20*time.Millisecond // nft answers some time after its rule began to hold: the truth is more
	run(t, name, "nft", "delete table ip t")
	end := downtimeOf(t, p, "with both silent", one, func(d time.Duration, at int64) bool {
		return d >= least && d <= time.Duration(at-one)-100*time.Millisecond // it has ended
	})
	series := p.Series(begin, end, now(), 50*time.Millisecond)
	if len(series) < 15 {
		t.Errorf("series of %d points", len(series))
	}
}

// downtimeOf waits until the downtime since from is as it is to be, and returns when that was.
func downtimeOf(t *testing.T, p *Prober, what string, from int64, right func(d time.Duration, at int64) bool) (at int64) {
	t.Helper()
	for w := need.Patient(5 * time.Second); ; {
		time.Sleep(200 * time.Millisecond)
		at = now()
		p.WaitFor(t.Context(), at)
		d, ok := p.Downtime(from, at-50e6, now())
		if ok && right(d, at) {
			return at
		}
		if w.Over() {
			t.Fatalf("%s: downtime %v, %v, of %v", what, d, ok, time.Duration(at-from))
		}
	}
}

func TestDowntime(t *testing.T) {
	reply := func(at int64) Reply { return Reply{Sent: at - 1, Time: at} }
	all := []Reply{reply(100), reply(110), reply(200), reply(210)}
	paused := []Reply{reply(100), reply(110), reply(520), reply(530)}
	far := []Reply{{Sent: 90, Time: 290}, {Sent: 100, Time: 300}, {Sent: 120, Time: 320}, {Sent: 502, Time: 702}, {Sent: 512, Time: 712}}
	late := slices.Insert(slices.Clone(paused), 2, reply(118))
	one, two := []spell{{90, 0}}, []spell{{90, 115}, {500, 0}}
	tests := []struct {
		name     string
		replies  []Reply
		spells   []spell
		from, to int64
		want     time.Duration
		ok       bool
	}{
		{"all of it", all, one, 100, 209, 90, true},
		{"its begin", all, one, 100, 111, 90, true},
		{"in the middle of a wait", all, one, 150, 160, 90, true},
		{"between waits", all, one, 200, 205, 10, true},
		{"the last has not ended", all, one, 205, 230, 790, true},
		{"before any probe", all, one, 10, 50, 0, false},
		{"before the first reply", all, one, 80, 95, 9, true},
		{"not known yet", all, one, 1060, 1070, 0, false},
		{"empty", all, one, 120, 120, 0, false},
		{"never a reply", nil, one, 100, 200, 0, false},
		{"none since it is asked again", all, []spell{{90, 215}, {500, 0}}, 500, 520, 500, true},
		{"after a pause", paused, two, 505, 525, 19, true},
		{"from within the pause", paused, two, 400, 525, 19, true},
		{"before the pause", paused, two, 100, 112, 10, true},
		{"within the pause", paused, two, 120, 400, 0, false},
		{"a late reply in the pause", late, two, 112, 525, 19, true},
		{"a far client's second time", far, []spell{{90, 330}, {500, 0}}, 505, 705, 10, true},
	}
	for _, test := range tests {
		got, ok := downtime(waitsOf(test.replies, test.spells, 1000), test.from, test.to)
		if got != test.want || ok != test.ok {
			t.Errorf("%s: [%d, %d): %v, %v; want %v, %v", test.name, test.from, test.to, int64(got), ok, int64(test.want), test.ok)
		}
	}
}

// TestDowntimeToAnEnd: of a wait that lasts on, only what there was until the end of the run counts.
func TestDowntimeToAnEnd(t *testing.T) {
	replies := []Reply{{Sent: 99, Time: 100}, {Sent: 109, Time: 110}, {Sent: 890, Time: 900}}
	for _, c := range []struct {
		replies   []Reply
		last      int64 // when it asked nobody any more; 0: it asks
		end, want int64
	}{{replies, 0, 300, 190}, {replies[:2], 0, 300, 190}, {replies, 500, 300, 190}, {replies, 0, 2000, 790}, {replies[:2], 0, 2000, 890}} {
		p := &Prober{replies: c.replies, spells: []spell{{90, c.last}}, until: 1000}
		if d, ok := p.Downtime(105, 200, c.end); !ok || int64(d) != c.want {
			t.Errorf("%+v: %d, %v", c, d, ok)
		}
	}
}

// TestSilence: of one address alone, from the window's begin on, whether it ever answered or not.
func TestSilence(t *testing.T) {
	old, next := netip.MustParseAddr("10.1.1.10"), netip.MustParseAddr("10.2.1.10")
	reply := func(of netip.Addr, at int64) Reply { return Reply{of, at - 1, at} }
	steady := []Reply{reply(old, 90), reply(next, 95), reply(next, 105), reply(next, 115)}
	late := []Reply{reply(old, 90), reply(old, 300), reply(next, 400), reply(next, 410)}
	fell := []Reply{reply(next, 95), reply(next, 105), reply(old, 200), reply(next, 700)}
	for _, c := range []struct {
		name    string
		replies []Reply
		last    int64 // when nobody was asked any more; 0: the prober asks
		want    int64
		known   bool
	}{
		{"it answers", steady, 120, 10, true},
		{"it answers late", late, 420, 299, true},
		{"it answers no more", steady, 0, 885, true},
		{"it was silent for a time", fell, 710, 595, true},
		{"the old one alone answers", []Reply{reply(old, 90), reply(old, 110)}, 500, 400, true},
		{"nobody answers", nil, 0, 900, true},
		{"nobody was asked", steady, 100, 0, false},
	} {
		p := &Prober{replies: c.replies, spells: []spell{{10, c.last}}, until: 1000}
		if d, known := p.Silence([]netip.Addr{next}, 100, 120, 2000); int64(d) != c.want || known != c.known {
			t.Errorf("%s: %d, %v; want %d, %v", c.name, int64(d), known, c.want, c.known)
		}
	}
}

// TestDisown: what another machine replied at an address, while it had that, is no reply of the guest's.
func TestDisown(t *testing.T) {
	its, others := netip.MustParseAddr("10.2.1.11"), netip.MustParseAddr("10.2.1.10")
	reply := func(of netip.Addr, at int64) Reply { return Reply{of, at - 1, at} }
	p := &Prober{spells: []spell{{90, 0}}, until: 1000, replies: []Reply{
		reply(others, 95), reply(its, 100), reply(others, 150), reply(others, 250), reply(its, 300), reply(others, 310),
	}}
	p.Disown([]netip.Addr{others}, 100, 310)
	if d, known := p.Downtime(120, 260, 2000); d != 200 || !known || len(p.replies) != 4 {
		t.Errorf("%d ns, %v; %v are left", d, known, p.replies)
	}
}

// TestProberRests: it asks on until a reply that is later, and what was set meanwhile holds.
func TestProberRests(t *testing.T) {
	need.Lab(t)
	name, _ := guest(t)
	p, err := StartProber(context.Background(), name, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	target := netip.MustParseAddr("127.0.0.5")
	for _, again := range []bool{false, true} {
		if err := p.SetTargets([]netip.Addr{target}); err != nil {
			t.Fatal(err)
		}
		at := now() + 100e6
		p.Rest(at)
		if again {
			if err := p.SetTargets([]netip.Addr{target}); err != nil {
				t.Fatal(err)
			}
		}
		p.WaitFor(t.Context(), at+600e6)
		after, later := len(repliesIn(p, at, at+300e6)), len(repliesIn(p, at+400e6, at+600e6))
		if after == 0 || (later > 0) != again {
			t.Errorf("set again %v: %d replies after, %d later", again, after, later)
		}
		if d, ok := p.Downtime(at-50e6, at+1, now()); !ok || d > 100*time.Millisecond {
			t.Errorf("set again %v: downtime %v, %v", again, d, ok)
		}
	}
}

// TestProberThatAskedNobody: who waits to know of a time in which nobody was asked hears that it is
// over, and nothing is known of it.
func TestProberThatAskedNobody(t *testing.T) {
	p, err := StartProber(context.Background(), namespace(t), 0)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	from := now()
	for deadline := time.Now().Add(20 * time.Second); !p.WaitFor(t.Context(), from+50e6); { // a busy machine starts it late
		if time.Now().After(deadline) {
			t.Fatal("it says nothing")
		}
	}
	if d, ok := p.Downtime(from, from+50e6, now()); ok {
		t.Errorf("a downtime of %v, and nobody was asked", d)
	}
	for _, point := range p.Series(from, from+50e6, now(), 10*time.Millisecond) {
		if point.Known {
			t.Errorf("%+v: nobody was asked", point)
		}
	}
}

// TestWaitForAProberThatIsStuck: it ends with the run, and by itself.
func TestWaitForAProberThatIsStuck(t *testing.T) {
	stuck := func() *Prober {
		r := &Prober{}
		r.news = sync.NewCond(&r.mu)
		return r
	}
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(50*time.Millisecond, cancel)
		if began := time.Now(); stuck().WaitFor(ctx, 1) || time.Since(began) != 50*time.Millisecond {
			t.Errorf("it was waited for, for %v, and the run had ended", time.Since(began))
		}
		if began := time.Now(); stuck().WaitFor(t.Context(), 1) || time.Since(began) != tellLimit {
			t.Errorf("it was waited for for %v, want %v", time.Since(began), tellLimit)
		}
	})
}

// TestStuckClient: a client's process that does not answer is not waited for for ever.
func TestStuckClient(t *testing.T) {
	c := client(t, namespace(t))
	need.Stop(t, c.p.cmd.Process.Pid)
	defer c.p.cmd.Process.Signal(syscall.SIGCONT) //nolint:errcheck // it ends then
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if _, err := c.p.ask(ctx, order{Op: "stop", Name: "x"}); err == nil || !strings.Contains(err.Error(), "does not answer") {
		t.Errorf("%v", err)
	}
}

// repliesIn are the replies that arrived in [from, to), unix ns, in order.
func repliesIn(r *Prober, from, to int64) []Reply {
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []Reply
	for _, x := range r.replies {
		if x.Time >= from && x.Time < to {
			out = append(out, x)
		}
	}
	return out
}
