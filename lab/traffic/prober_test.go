package traffic

import (
	"context"
	"net/netip"
	"testing"
	"time"
)

func TestProberSeesDroppedPackets(t *testing.T) {
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
	time.Sleep(300 * time.Millisecond)
	one := now()
	run(t, name, "nft", "add rule ip t in udp dport 7007 drop")
	silent := now()
	time.Sleep(200 * time.Millisecond)
	still := now()
	run(t, name, "nft", "delete table ip t")
	time.Sleep(200 * time.Millisecond)
	end := now()
	p.WaitFor(end)

	if d, ok := p.Downtime(begin+50e6, one-50e6); !ok || d > 200*time.Millisecond {
		t.Errorf("with one address silent: %v, %v", d, ok)
	}
	// nft answers some time after its rule began to hold: the truth is more than this, and
	// ended before the last 100 ms of those that were waited for.
	least := time.Duration(still-silent) - 20*time.Millisecond
	if d, ok := p.Downtime(one, end); !ok || d < least || d > time.Duration(end-one)-100*time.Millisecond {
		t.Errorf("downtime %v, %v, want from %v", d, ok, least)
	}
	n := p.Probes()
	if n[next].Sent-n[next].Answered < 5 || n[old].Sent-n[old].Answered < n[next].Sent-n[next].Answered+10 {
		t.Errorf("probes %+v", n)
	}
	series := p.Series(begin, end, 50*time.Millisecond)
	if len(series) < 15 {
		t.Errorf("series of %d points", len(series))
	}
}

func TestDowntime(t *testing.T) {
	replies := []Reply{{Time: 100}, {Time: 110}, {Time: 200}, {Time: 210}}
	tests := []struct {
		from, to int64
		want     time.Duration
		ok       bool
	}{
		{100, 215, 90, true},
		{100, 111, 90, true},
		{150, 160, 90, true}, // in the middle of one
		{200, 205, 10, true},
		{205, 230, 40, true}, // the last has not ended
		{10, 50, 0, false},   // before the first
		{260, 270, 0, false}, // not known yet
		{120, 120, 0, false},
	}
	for _, test := range tests {
		got, ok := downtime(replies, 250, test.from, test.to)
		if got != test.want || ok != test.ok {
			t.Errorf("[%d, %d): %v, %v; want %v, %v", test.from, test.to, got, ok, test.want, test.ok)
		}
	}
}
