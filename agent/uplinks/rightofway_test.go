package uplinks

import (
	"net/netip"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"godwit/agent/peer"
)

// ways are what migrations were told.
type ways map[string]int64

func (l ways) of(migration string) func(int64) { return func(bits int64) { l[migration] = bits } }

// over are paths by uplinks of this host, each of 20 Mbit/s.
func over(uplinks ...string) []peer.Path {
	var out []peer.Path
	for _, u := range uplinks {
		out = append(out, peer.Path{Local: netip.MustParseAddr(u), Rate: 20_000_000})
	}
	return out
}

// TestRightOfWay: who copies gives way to who waits on the same uplinks, and to nobody else.
func TestRightOfWay(t *testing.T) {
	var r RightOfWay
	got := ways{}
	r.Join("web", over("10.0.0.1", "10.0.1.1"), got.of("web"))
	r.Join("db", over("10.0.0.1"), got.of("db"))
	r.Join("far", over("10.0.2.1"), got.of("far"))
	r.Join("slow", []peer.Path{{Local: netip.MustParseAddr("10.0.0.1")}}, got.of("slow"))
	want := func(what string, web, db, far, slow int64) {
		t.Helper()
		if got["web"] != web || got["db"] != db || got["far"] != far || got["slow"] != slow {
			t.Errorf("%s: %v", what, got)
		}
	}
	want("nobody waits", 0, 0, 0, 0)
	r.Claim("db", true)
	want("db waits", 4_000_000, 0, 0, 1_000_000)
	r.Claim("web", true)
	want("web waits too", 0, 0, 0, 1_000_000)
	r.Claim("db", false)
	want("only web waits", 0, 2_000_000, 0, 1_000_000)
	r.Join("late", over("10.0.1.1"), got.of("late"))
	if got["late"] != 2_000_000 {
		t.Errorf("one that joins while another waits: %d bit/s", got["late"])
	}
	r.Join("web", over("10.0.2.1"), got.of("web")) // its lanes were opened again
	want("web waits elsewhere", 0, 0, 2_000_000, 0)
	r.Leave("web")
	r.Leave("web")
	r.Claim("web", true)
	want("web has left", 0, 0, 0, 0)
}

// TestWayOfACutPath: who waits for what does not move holds up nobody, until it moves again.
func TestWayOfACutPath(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r RightOfWay
		var web, moved atomic.Int64
		r.Join("web", over("10.0.0.1"), web.Store)
		r.Join("db", over("10.0.0.1"), func(int64) {})
		done := make(chan struct{})
		ended := make(chan struct{})
		go func() { r.HoldWhile("db", done, moved.Load); close(ended) }()
		after := func(d time.Duration, what string, bits int64) {
			t.Helper()
			time.Sleep(d)
			synctest.Wait()
			if got := web.Load(); got != bits {
				t.Errorf("%s: %d bit/s, want %d", what, got, bits)
			}
		}
		after(0, "db waits", 2_000_000)
		after((wayLooks+1)*wayLook, "nothing moves", 0)
		moved.Add(1)
		after(wayLook, "it moves again", 2_000_000)
		close(done)
		<-ended
		after(0, "it is through", 0)
	})
}

// TestBandwidthWhileGivingWay: the lower limit holds, and time is counted.
func TestBandwidthWhileGivingWay(t *testing.T) {
	b := Limit{bits: 8000}
	s := b.Share()
	for _, step := range []struct {
		what string
		do   func()
		want int64
	}{
		{"gives way", func() { b.GiveWay(800) }, 100},
		{"is limited anew", func() { b.Set(400) }, 50},
		{"is not limited", func() { b.Set(0) }, 100},
		{"a stream that is new", func() { s = b.Share() }, 100},
		{"goes on", func() { b.GiveWay(0) }, 0},
	} {
		step.do()
		if now := s.Rate(); now != step.want {
			t.Errorf("%s: %d bytes/s, want %d", step.what, now, step.want)
		}
	}
	if b.Bits() != 0 {
		t.Errorf("limited to %d", b.Bits())
	}
	if b.GivesWay() {
		t.Error("gives way")
	}
	if gave, changed := b.GiveWay(0); gave != 0 || changed {
		t.Errorf("told twice: %v, %t", gave, changed)
	}
}
