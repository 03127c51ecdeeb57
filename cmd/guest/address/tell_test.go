package address

import (
	"errors"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"

	"godwit/netstate/mptcp"
	"godwit/vm/guest"

	"github.com/vishvananda/netlink"
)

// telling is a NIC whose IPv4 peers can be told of what it is ready for by the ids from 3 on, and says who is told of what.
func telling(t *testing.T) (next guest.Configure, known func() []mptcp.Endpoint) {
	t.Helper()
	if _, err := mptcp.Endpoints(); err != nil {
		t.Skip(err)
	}
	t.Cleanup(func() { forgetEndpoints(t) })
	next = twoNICs(t)[0]
	next.Addrs, next.GatewayV6, next.Endpoint = next.Addrs[:1], netip.Addr{}, 3
	return next, func() []mptcp.Endpoint {
		t.Helper()
		endpoints, err := mptcp.Endpoints()
		if err != nil {
			t.Fatal(err)
		}
		return endpoints
	}
}

// TestDownSinceItWasReady: a NIC that was set down, or whose routes were flushed, since it was made ready is up and leads
// as it should once it is configured, though it has its IPv4 address still.
func TestDownSinceItWasReady(t *testing.T) {
	next, _ := telling(t)
	link, err := netlink.LinkByName("own0")
	if err != nil {
		t.Fatal(err)
	}
	flush := func() error {
		return netlink.RouteDel(new(everythingBy(link, next.GatewayV4, next.Table)))
	}
	for what, take := range map[string]func() error{
		"nothing":    func() error { return nil },
		"down":       func() error { return netlink.LinkSetDown(link) },
		"down, up":   func() error { return errors.Join(netlink.LinkSetDown(link), netlink.LinkSetUp(link)) },
		"its routes": flush,
	} {
		var b Book
		for _, err := range []error{b.Ready(next), b.Tell(next.MAC), take()} {
			if err != nil {
				t.Fatal(err)
			}
		}
		_, err := b.Configure(next)
		if err := errors.Join(err, b.MakeMain(next.MAC)); err != nil {
			t.Errorf("%s was taken: %v", what, err)
		}
		if now, err := netlink.LinkByName("own0"); err != nil || now.Attrs().Flags&net.FlagUp == 0 {
			t.Errorf("%s was taken: the NIC is down, %v", what, err)
		}
		if err := flush(); err != nil {
			t.Errorf("%s was taken: nothing leads out of the NIC: %v", what, err)
		}
		if err := b.Retire(guest.Retire{Addrs: []netip.Addr{next.Addrs[0].Addr()}, MAC: next.MAC}); err != nil {
			t.Fatal(err)
		}
	}
}

// endpointOf is by which peers are told of p's first address.
func endpointOf(p guest.Configure, id uint8) mptcp.Endpoint {
	return mptcp.Endpoint{ID: id, Addr: p.Addrs[0].Addr(), Dev: "own0", Flags: mptcp.FlagSignal}
}

// TestToldBefore: peers are told once, while the guest is where it was, and what is configured is as without that.
func TestToldBefore(t *testing.T) {
	next, known := telling(t)
	var b Book
	if err := b.Tell(next.MAC); err == nil {
		t.Error("told of a NIC that is ready for nothing")
	}
	if err := b.Ready(next); err != nil {
		t.Fatal(err)
	}
	if len(known()) != 0 {
		t.Fatalf("told before it was asked for: %v", known())
	}
	want := []mptcp.Endpoint{endpointOf(next, 3)}
	for range 2 { // an effect may be performed again
		if err := b.Tell(strings.ToUpper(next.MAC)); err != nil {
			t.Fatal(err)
		}
		if got := known(); !slices.Equal(got, want) {
			t.Fatalf("told of %v, want %v", got, want)
		}
	}
	if arp, err := os.ReadFile(answersOf("own0")); err != nil || strings.TrimSpace(string(arp)) != answersForOwn {
		t.Errorf("arp_ignore %s, %v: who comes has no answer", arp, err)
	}
	made, err := b.Configure(next)
	if err != nil || !slices.Equal(made.EndpointIDs, []uint8{3}) {
		t.Errorf("configured: %+v, %v", made, err)
	}
	if got := known(); !slices.Equal(got, want) {
		t.Errorf("configured: told of %v, want %v", got, want)
	}
	if err := b.MakeMain(next.MAC); err != nil {
		t.Fatal(err)
	}
	wantOn(t, "the main one", "own0", next.Addrs[0].String())
}

// TestToldOfBoth: peers are told of the first address of each family, by a pair of ids, and of IPv6 where there is
// nothing else.
func TestToldOfBoth(t *testing.T) {
	four, known := telling(t)
	both := dual(four)
	six := both
	six.Addrs = both.Addrs[1:]
	ofSix := endpointOf(six, 4)
	for name, c := range map[string]struct {
		next guest.Configure
		want []mptcp.Endpoint
		ids  []uint8
	}{
		"both":       {both, []mptcp.Endpoint{endpointOf(both, 3), ofSix}, []uint8{3, 4}},
		"IPv6 alone": {six, []mptcp.Endpoint{ofSix}, []uint8{4}},
	} {
		var b Book
		for _, err := range []error{b.Ready(c.next), b.Tell(c.next.MAC), b.Tell(c.next.MAC)} {
			if err != nil {
				t.Fatal(err)
			}
		}
		if got := known(); !slices.Equal(got, c.want) {
			t.Errorf("%s: told of %v, want %v", name, got, c.want)
		}
		if made, err := b.Configure(c.next); err != nil || !slices.Equal(made.EndpointIDs, c.ids) {
			t.Errorf("%s: configured: %+v, %v", name, made, err)
		}
		if got := known(); !slices.Equal(got, c.want) {
			t.Errorf("%s: configured: told of %v, want %v", name, got, c.want)
		}
		if err := b.Drop([]netip.Addr{both.Addrs[0].Addr(), both.Addrs[1].Addr()}); err != nil {
			t.Fatal(err)
		}
	}
}

// TestToldOfOne: where peers cannot be told of one family, as somebody else has told them of its address since, what
// they were told of the other is known: it is taken back where the guest stays, and the rest is told where it arrives.
func TestToldOfOne(t *testing.T) {
	next, known := telling(t)
	next = dual(next)
	theirs := mptcp.Endpoint{ID: 4, Addr: next.Addrs[1].Addr(), Flags: mptcp.FlagSignal}
	var b Book
	told := func() {
		t.Helper()
		if err := errors.Join(b.Ready(next), mptcp.AddEndpoint(theirs)); err != nil {
			t.Fatal(err)
		}
		if err := b.Tell(next.MAC); err == nil {
			t.Error("told of an address that was told of already")
		}
		if got := known(); !slices.Contains(got, theirs) || len(got) != 2 {
			t.Fatalf("told of %v", got)
		}
	}
	told()
	if err := b.Ready(guest.Configure{MAC: next.MAC}); err != nil {
		t.Fatal(err)
	}
	if got := known(); !slices.Equal(got, []mptcp.Endpoint{theirs}) {
		t.Errorf("the guest stays: %v is left, want %v", got, theirs)
	}
	forgetEndpoints(t)
	told()
	if made, err := b.Configure(next); err != nil || !slices.Equal(made.EndpointIDs, []uint8{5, 6}) { // 3 is spent
		t.Errorf("configured: %+v, %v", made, err)
	}
	if got := known(); !slices.Equal(got, []mptcp.Endpoint{endpointOf(next, 5), {ID: 6, Addr: theirs.Addr, Dev: "own0", Flags: mptcp.FlagSignal}}) {
		t.Errorf("configured: told of %v", got)
	}
}

// TestToldForNothing: what peers were told is taken back where the guest stays, or gets something else, and they are
// told of no other address by the same id.
func TestToldForNothing(t *testing.T) {
	next, known := telling(t)
	other, shown, asked := next, next, next
	other.Addrs = []netip.Prefix{netip.MustParsePrefix("10.8.0.99/24")}
	shown.Announce = []netip.Addr{netip.MustParseAddr("192.0.2.7")}
	asked.Endpoint = 7
	for name, c := range map[string]struct {
		instead func(b *Book) error
		want    []mptcp.Endpoint
	}{
		"the guest stays":       {func(b *Book) error { return b.Ready(guest.Configure{MAC: next.MAC}) }, nil},
		"nobody asks any more":  {func(b *Book) error { b.expire(next.MAC, b.ready[next.MAC].term); return nil }, nil},
		"it is another address": {func(b *Book) error { return second(b.Configure(other)) }, []mptcp.Endpoint{endpointOf(other, 5)}},
		"it is another id":      {func(b *Book) error { return second(b.Configure(asked)) }, []mptcp.Endpoint{endpointOf(next, 7)}},
		"a NAT shows another": {func(b *Book) error { return second(b.Configure(shown)) },
			[]mptcp.Endpoint{{ID: 5, Addr: shown.Announce[0], Dev: "own0", Flags: mptcp.FlagSignal}}},
		"it is told again, and goes": {func(b *Book) error {
			return errors.Join(b.Ready(guest.Configure{MAC: next.MAC}), b.Ready(next), b.Tell(next.MAC), second(b.Configure(next)))
		}, []mptcp.Endpoint{endpointOf(next, 5)}},
	} {
		var b Book
		for _, err := range []error{b.Ready(next), b.Tell(next.MAC), c.instead(&b)} {
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
		}
		if got := known(); !slices.Equal(got, c.want) {
			t.Errorf("%s: told of %v, want %v", name, got, c.want)
		}
		forgetEndpoints(t)
		if err := b.Drop([]netip.Addr{next.Addrs[0].Addr(), other.Addrs[0].Addr()}); err != nil {
			t.Fatal(err)
		}
	}
}

// TestOthersAreNotUntold: an endpoint that somebody else has made by that id since stays.
func TestOthersAreNotUntold(t *testing.T) {
	next, known := telling(t)
	theirs := mptcp.Endpoint{ID: 3, Addr: netip.MustParseAddr("192.0.2.9"), Flags: mptcp.FlagSignal}
	var b Book
	for _, err := range []error{b.Ready(next), b.Tell(next.MAC), mptcp.DelEndpoint(3, next.Addrs[0].Addr()), mptcp.AddEndpoint(theirs),
		b.Ready(guest.Configure{MAC: next.MAC})} {
		if err != nil {
			t.Fatal(err)
		}
	}
	if got := known(); !slices.Equal(got, []mptcp.Endpoint{theirs}) {
		t.Errorf("%v is left, want %v", got, theirs)
	}
}

// TestToldByAnEarlierRun: a program that was started again takes back what it had told, too, where the guest stays.
func TestToldByAnEarlierRun(t *testing.T) {
	next, known := telling(t)
	shown := next
	shown.Announce = []netip.Addr{netip.MustParseAddr("192.0.2.7")}
	theirs := mptcp.Endpoint{ID: 9, Addr: netip.MustParseAddr("192.0.2.9"), Flags: mptcp.FlagSignal}
	if err := mptcp.AddEndpoint(theirs); err != nil {
		t.Fatal(err)
	}
	var before Book
	for _, was := range []guest.Configure{next, shown} { // a NAT shows the second
		var b Book
		before = Book{}
		for _, err := range []error{before.Ready(was), before.Tell(next.MAC), b.Ready(guest.Configure{MAC: next.MAC})} {
			if err != nil {
				t.Fatal(err)
			}
		}
		if got := known(); !slices.Equal(got, []mptcp.Endpoint{theirs}) {
			t.Errorf("told of %v still", got)
		}
		wantOn(t, "the guest stays", "own0")
	}
	if err := mptcp.DelEndpoint(9, theirs.Addr); err != nil {
		t.Fatal(err)
	}
	before = Book{}
	for _, err := range []error{before.Ready(next), before.Tell(next.MAC)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	var c Book
	if made, err := c.Configure(next); err != nil || !slices.Equal(made.EndpointIDs, []uint8{3}) && !slices.Equal(made.EndpointIDs, []uint8{5}) {
		t.Errorf("configured by one that was started again: %+v, %v", made, err)
	}
	if got := known(); len(got) != 1 || got[0].Addr != next.Addrs[0].Addr() {
		t.Errorf("told of %v", got)
	}
}

// TestCrowdIsToldLater: so many come that what holds their packets has no room for them.
func TestCrowdIsToldLater(t *testing.T) {
	next, known := telling(t)
	var b Book
	if err := b.Ready(next); err != nil {
		t.Fatal(err)
	}
	m := b.ready[next.MAC]
	m.crowd = true
	b.ready[next.MAC] = m
	if err := b.Tell(next.MAC); !errors.Is(err, errCrowd) || len(known()) > 0 {
		t.Errorf("%v, told of %v", err, known())
	}
	if made, err := b.Configure(next); err != nil || !slices.Equal(made.EndpointIDs, []uint8{3}) {
		t.Errorf("configured: %+v, %v", made, err)
	}
}

// TestCrowdThatCameSince: those that came while memory was copied count, too.
func TestCrowdThatCameSince(t *testing.T) {
	next, known := telling(t)
	var b Book
	if err := b.Ready(next); err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	for range manyAre {
		c, err := net.Dial("tcp", listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
	}
	for range 2 {
		if err := b.Tell(next.MAC); !errors.Is(err, errCrowd) || len(known()) > 0 {
			t.Errorf("%v, told of %v", err, known())
		}
		if err := b.Ready(next); err != nil { // as it is asked again and again
			t.Fatal(err)
		}
	}
}

// TestSpentIDsEnd: a guest that was to move very often, and never did, has ids left.
func TestSpentIDsEnd(t *testing.T) {
	next, known := telling(t)
	var b Book
	for range 2 * mostSpent {
		for _, err := range []error{b.Ready(next), b.Tell(next.MAC), b.Ready(guest.Configure{MAC: next.MAC})} {
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	if len(b.spent) > mostSpent || len(known()) > 0 {
		t.Errorf("%d ids are spent, endpoints %v are left", len(b.spent), known())
	}
}
