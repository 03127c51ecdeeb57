package traffic

import (
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"godwit/internal/need"
	"godwit/lab/traffic/record"
)

// TestWhereDatagramsAreMissing: a result says which datagrams are, and when they went.
func TestWhereDatagramsAreMissing(t *testing.T) {
	need.Lab(t)
	name, _ := guest(t)
	c := client(t, name)
	begin(t, c, Flow{Name: "x", Kind: UDP})
	time.Sleep(300 * time.Millisecond)
	before := now()
	address := &netlink.Addr{IPNet: &net.IPNet{IP: loopback.AsSlice(), Mask: net.CIDRMask(8, 32)}}
	loopbackIs(t, name, func(lo netlink.Link) error { return netlink.AddrDel(lo, address) })
	time.Sleep(300 * time.Millisecond)
	loopbackIs(t, name, func(lo netlink.Link) error { return netlink.AddrAdd(lo, address) })
	after := now()
	time.Sleep(300 * time.Millisecond)
	r := end(t, c, "x")
	var lost int64
	for _, h := range r.Holes {
		lost += h.Lost
		if h.Lost > int64(h.To-h.From) || h.Since > h.Until || h.Since < before-5e7 || h.Until > after+5e7 {
			t.Errorf("hole %+v; there was no way from %d to %d", h, before, after)
		}
	}
	if r.LostUnknown != "" {
		t.Errorf("the guest answers, and yet %s", r.LostUnknown)
	}
	if lost == 0 || lost != r.Lost || !strings.Contains(r.SendError, "unreachable") {
		t.Errorf("%d of %d lost are in %+v; send error %q", lost, r.Lost, r.Holes, r.SendError)
	}
}

// TestHoles: datagrams that come late are in no hole, those after the last that came are, and what is too
// much to keep is in the last.
func TestHoles(t *testing.T) {
	f := newDatagrams(Flow{Connections: 1})
	k, err := newOutlet(false, 1)
	if err != nil {
		t.Fatal(err)
	}
	f.outlets = append(f.outlets, k)
	counted := func(next, received uint64) { f.counted(k, record.UDPStats{Next: next, Received: received}, now()) }
	has := func(when string, want ...Hole) {
		t.Helper()
		got := slices.Clone(f.holes)
		for i := range got {
			got[i].Since, got[i].Until = 0, 0
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: %+v, want %+v", when, got, want)
		}
	}
	counted(10, 10)
	counted(20, 18)
	counted(30, 27)
	has("three are missing", Hole{Lost: 2, From: 10, To: 20}, Hole{Lost: 1, From: 20, To: 30})
	counted(40, 39)
	has("two came late", Hole{Lost: 1, From: 10, To: 20})
	f.sent, f.stopped = 45, true
	if r := f.stop(); r.Lost != 6 || len(r.Holes) != 2 || r.Holes[1].From != 40 || r.Holes[1].To != 45 || r.Holes[1].Lost != 5 || !strings.HasSuffix(r.LostUnknown, ": 6 at most") {
		t.Errorf("%d lost: %+v; %s", r.Lost, r.Holes, r.LostUnknown)
	}
	f = newDatagrams(Flow{Connections: 1})
	for n := range uint64(mostHoles + 2) {
		counted(2*n+2, n+1)
	}
	if last := f.holes[len(f.holes)-1]; len(f.holes) != mostHoles || last.Lost != 3 || last.To != 2*mostHoles+4 {
		t.Errorf("%d holes, the last %+v", len(f.holes), last)
	}
}

// TestGuestThatCountsAnew: a guest that booted anew has forgotten its count, and what it had told of it still holds. An
// answer from before its reboot that comes after is nothing new.
func TestGuestThatCountsAnew(t *testing.T) {
	f := newDatagrams(Flow{Connections: 1})
	k := &outlet{waits: newWaits(1)}
	f.outlets = append(f.outlets, k)
	for _, told := range []record.UDPStats{
		{Counter: 7, Received: 90, Bytes: 9000, Repeated: 2, Corrupt: 1, Next: 100},
		{}, // asked as it is up, before anything has arrived
		{Counter: 3, Received: 10, Bytes: 1000, Late: 1, Next: 160},
		{Counter: 7, Received: 91, Bytes: 9100, Repeated: 2, Corrupt: 1, Next: 101},
		{Counter: 3, Received: 20, Bytes: 2000, Late: 1, Next: 170},
		{Counter: 9, Received: 5, Bytes: 500, Corrupt: 1, Next: 200},
	} {
		f.counted(k, told, now())
	}
	if f.lost != 200-115-2 || f.records != 115 || f.bytes != 11500 || f.repeated != 2 || f.corrupt != 2 || f.stats.Late != 1 {
		t.Errorf("%d lost, %d records of %d bytes, %d repeated, %d corrupt; %+v", f.lost, f.records, f.bytes, f.repeated, f.corrupt, f.stats)
	}
	var missing int64
	for _, h := range f.holes {
		missing += h.Lost
	}
	if missing != f.lost {
		t.Errorf("%d missing in %+v, and %d lost", missing, f.holes, f.lost)
	}
}

// TestGuestBehindIsAskedSeldom: a guest that answers late has enough to do, and is asked as often as
// before once it has caught up.
func TestGuestBehindIsAskedSeldom(t *testing.T) {
	f := newDatagrams(Flow{Kind: UDP, Connections: 2, Every: 20 * time.Millisecond})
	f.outlets = []*outlet{{}, {}}
	for _, c := range []struct {
		took  time.Duration
		asked int
	}{{20 * time.Millisecond, 40}, {8 * time.Second, 4}, {900 * time.Millisecond, 40}} {
		f.counted(f.outlets[0], record.UDPStats{}, now()-int64(c.took))
		asked := map[int]int{}
		for turn := range 40 {
			if f.asks(turn) {
				asked[turn%2]++
			}
		}
		if asked[0] != c.asked/2 || asked[1] != c.asked/2 {
			t.Errorf("asked %v times in 40 turns of two sockets after an answer that took %v: want %d in all", asked, c.took, c.asked)
		}
	}
}

// TestSilentGuestIsAskedSeldom: a guest that has not answered for a while is away, and its first answer makes it asked as
// often as before.
func TestSilentGuestIsAskedSeldom(t *testing.T) {
	f := newDatagrams(Flow{Kind: UDP, Connections: 2, Every: 20 * time.Millisecond})
	for range 2 {
		k, err := newOutlet(false, 2)
		if err != nil {
			t.Fatal(err)
		}
		defer k.c.Close()
		f.outlets = append(f.outlets, k)
	}
	asked := func() (n int) {
		for turn := range 40 {
			if f.asks(turn) {
				n++
				f.ask(f.outlets[turn%2])
			}
		}
		return n
	}
	for _, silent := range []struct {
		since time.Duration
		want  int
	}{{0, 40}, {lateAnswer / 2, 40}, {lateAnswer, 4}} {
		if f.waited > 0 {
			f.waited = now() - int64(silent.since)
		}
		if n := asked(); n != silent.want {
			t.Errorf("asked %d times in 40 turns of a guest that was silent for %v, want %d", n, silent.since, silent.want)
		}
	}
	f.counted(f.outlets[0], record.UDPStats{}, now()-int64(20*time.Millisecond))
	if n := asked(); n != 40 {
		t.Errorf("asked %d times in 40 turns after an answer", n)
	}
}

// TestEndOfBusyGuest: at the end a guest that is behind is asked by each socket that it has not answered lately, and by
// no other.
func TestEndOfBusyGuest(t *testing.T) {
	f := newDatagrams(Flow{Kind: UDP, Connections: 4, Every: 20 * time.Millisecond})
	f.outlets = []*outlet{{answered: 90}, {answered: 120}, {}, {answered: 101}}
	f.answered, f.stopped, f.since = int64(8*time.Second), true, 100
	var asked []int
	for turn := 40; turn < 44; turn++ {
		if f.asks(turn + 4) {
			asked = append(asked, turn%4)
		}
	}
	if !slices.Equal(asked, []int{0, 2}) {
		t.Errorf("asked by %v", asked)
	}
}

// TestRareDatagramsSurvive: a flow of a datagram every few seconds begins at once, and is not
// taken for dead.
func TestRareDatagramsSurvive(t *testing.T) {
	name, server := guest(t)
	c := client(t, name)
	begin(t, c, Flow{Name: "rare", Kind: UDP, Connections: 2, Every: 3 * time.Second})
	time.Sleep(fresh + 500*time.Millisecond)
	r := end(t, c, "rare")
	if !r.Survived || len(r.Connections) != 2 || r.Lost != 0 || r.Records < 1 || r.Records > 3 {
		t.Errorf("survived %v, %d sockets, %d datagrams, %d lost", r.Survived, len(r.Connections), r.Records, r.Lost)
	}
	begin(t, c, Flow{Name: "dead", Kind: UDP})
	if err := server.Kill(); err != nil {
		t.Fatal(err)
	}
	if _, err := server.Wait(); err != nil {
		t.Fatal(err)
	}
	time.Sleep(fresh + 100*time.Millisecond)
	if r = end(t, c, "dead"); r.Survived || r.Connections[0].Survived {
		t.Error("nobody is there, and it survived")
	}
}

// TestDatagramOf: datagrams are as far apart as their rate wants it, also where it is low.
func TestDatagramOf(t *testing.T) {
	for _, c := range []struct {
		rate  int64
		every time.Duration
		size  int
		apart time.Duration
	}{
		{0, 10 * time.Millisecond, 200, 10 * time.Millisecond},
		{160e3, 10 * time.Millisecond, 200, 10 * time.Millisecond},
		{8e3, 10 * time.Millisecond, 64, 64 * time.Millisecond},
		{9600e3, 10 * time.Millisecond, 1200, time.Millisecond},
	} {
		if size, apart := datagramOf(c.rate, c.every); size != c.size || apart != c.apart {
			t.Errorf("%d bit/s: %d bytes every %v", c.rate, size, apart)
		}
	}
}
