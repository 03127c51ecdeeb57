package address

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"godwit/netstate/mptcp"
	"godwit/netstate/netns"
	"godwit/vm/guest"
)

// besideWorld is a guest at three sites in turn, of which a NAT stands before the second, and its client.
type besideWorld struct {
	client          string // namespace
	book            Book
	one, two, three guest.Configure
	public          netip.Addr // of the second
}

func beside(t *testing.T) *besideWorld {
	w := &besideWorld{client: behindNAT(t), public: netip.MustParseAddr("203.0.113.10")}
	t.Cleanup(func() { forgetEndpoints(t) })
	nic := func(i int, id uint8) guest.Configure {
		return guest.Configure{MAC: fmt.Sprintf("52:54:00:00:aa:0%d", i), Table: 100 + i, Endpoint: id,
			GatewayV4: netip.MustParseAddr(fmt.Sprintf("10.%d.1.1", i)), Addrs: []netip.Prefix{netip.MustParsePrefix(fmt.Sprintf("10.%d.1.10/24", i))}}
	}
	w.one, w.two, w.three = nic(1, 0), nic(2, 5), nic(3, 7)
	w.one.Main, w.two.Announce = true, []netip.Addr{w.public}
	return w
}

func (w *besideWorld) configure(t *testing.T, c guest.Configure) {
	t.Helper()
	if _, err := w.book.Configure(c); err != nil {
		t.Fatal(err)
	}
}

// accepts has connections of the client's that begin later take so many announced addresses.
func (w *besideWorld) accepts(t *testing.T, n uint32) {
	t.Helper()
	if err := netns.Do(w.client, func() error { return mptcp.SetLimits(8, n) }); err != nil {
		t.Fatal(err)
	}
}

func (w *besideWorld) retire(t *testing.T, p guest.Retire) {
	t.Helper()
	if err := w.book.Retire(p); err != nil {
		t.Fatal(err)
	}
}

// announced says whether what the NAT shows is.
func (w *besideWorld) announced(t *testing.T) bool {
	t.Helper()
	endpoints, err := mptcp.Endpoints()
	if err != nil {
		t.Fatal(err)
	}
	return slices.ContainsFunc(endpoints, func(e mptcp.Endpoint) bool { return e.Addr == w.public })
}

func own(c guest.Configure) netip.Addr { return c.Addrs[0].Addr() }

// TestLeavesBesideOneThatCannot: behind a NAT, too, an address that nobody needs is withdrawn where somebody needs an
// older one: connections would keep a subflow there, and clients go on counting it, move by move.
func TestLeavesBesideOneThatCannot(t *testing.T) {
	for name, network := range map[string]string{"by IPv4": "tcp4", "by a listener of both families": "tcp"} {
		t.Run(name, func(t *testing.T) { leavesBesideOneThatCannot(t, network) })
	}
}

func leavesBesideOneThatCannot(t *testing.T, network string) {
	w := beside(t)
	w.configure(t, w.one)
	talkTo(t, w.client, network, own(w.one), 7000)
	w.accepts(t, 0)
	talkTo(t, w.client, network, own(w.one), 7001) // it cannot follow
	w.accepts(t, 8)
	w.configure(t, w.two)
	if !joins(t, own(w.two).String(), 20*time.Second) {
		t.Fatal("nobody came to the announced address")
	}
	w.retire(t, guest.Retire{Addrs: []netip.Addr{own(w.one)}, MAC: w.one.MAC, NewMAC: w.two.MAC, Keep: true, Stay: true})
	w.configure(t, w.three)
	if !joins(t, own(w.three).String(), 20*time.Second) {
		t.Fatal("nobody followed from behind the NAT")
	}
	w.retire(t, guest.Retire{Addrs: []netip.Addr{own(w.two), own(w.one)}, MAC: w.two.MAC, NewMAC: w.three.MAC, EndpointIDs: []uint8{5}, Keep: true, Stay: true})
	if joins(t, own(w.two).String(), 0) {
		t.Error("a subflow is left on the address that went")
	}
	if w.announced(t) {
		t.Error("what the NAT shows is announced still")
	}
	if !joins(t, own(w.one).String(), 0) {
		t.Error("the one that cannot follow has lost its address")
	}
}

// TestNATOfAKeptAddress: what a NAT shows of an address that is kept for somebody stays announced for as long as that
// is, also when the NIC that was configured with it is used no more, and goes with it.
func TestNATOfAKeptAddress(t *testing.T) {
	w := beside(t)
	w.configure(t, w.one)
	w.accepts(t, 1) // it follows once
	talkTo(t, w.client, "tcp4", own(w.one), 7000)
	w.configure(t, w.two)
	if !joins(t, own(w.two).String(), 20*time.Second) {
		t.Fatal("nobody came to the announced address")
	}
	w.retire(t, guest.Retire{Addrs: []netip.Addr{own(w.one)}, MAC: w.one.MAC, NewMAC: w.two.MAC})
	w.configure(t, w.three)
	if joins(t, own(w.three).String(), time.Second) {
		t.Fatal("the client could follow: this test shows nothing")
	}
	w.retire(t, guest.Retire{Addrs: []netip.Addr{own(w.two)}, MAC: w.two.MAC, NewMAC: w.three.MAC, EndpointIDs: []uint8{5}, Keep: true})
	if !w.announced(t) || !slices.Contains(w.book.public(), w.public) {
		t.Errorf("%v is known: what the NAT shows of an address that somebody needs may be withdrawn", w.book.public())
	}
	if err := w.book.Drop([]netip.Addr{own(w.two)}); err != nil {
		t.Fatal(err)
	}
	if w.announced(t) || len(w.book.public()) > 0 {
		t.Errorf("%v is known: what the NAT shows of an address that was dropped is announced still", w.book.public())
	}
}
