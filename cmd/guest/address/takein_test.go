package address

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"godwit/internal/need"
	"godwit/netstate"
	"godwit/netstate/mptcp"
	"godwit/netstate/netns"
	"godwit/vm/guest"

	"github.com/vishvananda/netlink"
)

// sixOn are what a NIC has of IPv6, but for link-local ones, and the addresses to which packets are taken in by it.
func sixOn(t *testing.T, name string) (has, taken []netip.Addr) {
	t.Helper()
	link, all := v6On(t, name)
	for _, a := range all {
		if addr, ok := netip.AddrFromSlice(a.IP); ok && !addr.IsLinkLocalUnicast() {
			has = append(has, addr)
		}
	}
	taken, err := takenIn(link)
	if err != nil {
		t.Fatal(err)
	}
	return has, taken
}

// wantSix is of what sixOn says.
func wantSix(t *testing.T, what, name string, has, taken []netip.Addr) {
	t.Helper()
	if h, in := sixOn(t, name); !slices.Equal(h, has) || !slices.Equal(in, taken) {
		t.Errorf("%s: %s has %v and takes in %v, want %v and %v", what, name, h, in, has, taken)
	}
}

// answered says whether somebody on the NIC's LAN is answered who asks for an IPv6 address.
func answered(t *testing.T, lan string, addr netip.Addr) bool {
	t.Helper()
	used, _, err := netstate.Probe(t.Context(), lan, addr)
	if err != nil {
		t.Fatal(err)
	}
	return used
}

// TestTakenInUnnoticed: a NIC that is ready for an IPv6 address has it not, and answers nobody who asks for it, also
// where peers were told of it; what comes to it is taken in. It has it once it is configured, and takes it in by itself
// once it is the main one.
func TestTakenInUnnoticed(t *testing.T) {
	next, _ := telling(t)
	next = dual(next)
	six := next.Addrs[1].Addr()
	var b Book
	for _, do := range []func() error{func() error { return b.Ready(next) }, func() error { return b.Tell(next.MAC) }} {
		if err := do(); err != nil {
			t.Fatal(err)
		}
		wantSix(t, "before it leaves", "own0", nil, []netip.Addr{six})
		wantUsable(t, next.Addrs, 1)
		if answered(t, "lan0", six) {
			t.Error("who asks for the next address where the guest is, is answered")
		}
	}
	if _, err := b.Configure(next); err != nil {
		t.Fatal(err)
	}
	wantSix(t, "configured", "own0", []netip.Addr{six}, []netip.Addr{six})
	wantUsable(t, next.Addrs, -1)
	if !answered(t, "lan0", six) {
		t.Error("configured, it does not answer who asks for its address")
	}
	if err := b.MakeMain(next.MAC); err != nil {
		t.Fatal(err)
	}
	wantSix(t, "the main one", "own0", []netip.Addr{six}, nil)
	wantUsable(t, next.Addrs, -1)
	if err := b.Retire(guest.Retire{Addrs: []netip.Addr{next.Addrs[0].Addr(), six}, MAC: next.MAC}); err != nil {
		t.Fatal(err)
	}
	wantSix(t, "retired", "own0", nil, nil)
}

// wantUsable is of which of addrs own0 does not take in by having it, the kernel's own way, for which it takes a moment.
func wantUsable(t *testing.T, addrs []netip.Prefix, missing int) {
	t.Helper()
	link, err := netlink.LinkByName("own0")
	if err == nil && missing < 0 {
		err = awaitUsable(link, addrs)
	}
	if err != nil {
		t.Fatal(err)
	}
	if got, err := unusable(link, addrs); err != nil || got != missing {
		t.Errorf("the NIC has not address %d, %v, want %d", got, err, missing)
	}
}

// dual has p's NIC get an IPv6 address, too.
func dual(p guest.Configure) guest.Configure {
	p.Addrs = append(slices.Clone(p.Addrs), netip.MustParsePrefix("fd08:0::10/64"))
	p.GatewayV6 = netip.MustParseAddr("fd08:0::1")
	return p
}

// TestTakenInGoes: nothing of it is left where the guest stays, whoever takes it back: this run of the program, one
// that was started again since, or nobody, as the guest's own programs took the NIC down.
func TestTakenInGoes(t *testing.T) {
	next, known := telling(t)
	next = dual(next)
	six := next.Addrs[1].Addr()
	down := guest.Configure{MAC: next.MAC}
	for name, takeBack := range map[string]func(b *Book) error{
		"the guest stays":         func(b *Book) error { return b.Ready(down) },
		"nobody asks any more":    func(b *Book) error { b.expire(next.MAC, b.ready[next.MAC].term); return nil },
		"a program started again": func(*Book) error { return new(Book).Ready(down) },
		"which is to drop it":     func(*Book) error { return new(Book).Drop([]netip.Addr{six, next.Addrs[0].Addr()}) },
		"it left, and was taken back": func(b *Book) error {
			_ = second(b.Configure(next))
			return b.Drop([]netip.Addr{six, next.Addrs[0].Addr()})
		},
	} {
		for _, told := range []bool{true, false} {
			var b Book
			if err := b.Ready(next); err != nil {
				t.Fatal(err)
			}
			if told {
				if err := b.Tell(next.MAC); err != nil {
					t.Fatal(err)
				}
			}
			if err := takeBack(&b); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			wantSix(t, name, "own0", nil, nil)
			if rules, err := rulesFrom(six); err != nil || len(rules) > 0 {
				t.Errorf("%s: rules %v, %v", name, rules, err)
			}
			if got := known(); len(got) > 0 {
				t.Errorf("%s: told of %v", name, got)
			}
			if m, ok := b.ready[next.MAC]; ok {
				m.close()
			}
		}
	}
}

// TestTakenInAgain: what somebody took of it is made again when the guest is asked again, and it goes where another
// address is to be next.
func TestTakenInAgain(t *testing.T) {
	next, _ := telling(t)
	next = dual(next)
	six, other := next.Addrs[1].Addr(), next
	other.Addrs = []netip.Prefix{next.Addrs[0], netip.MustParsePrefix("fd08:0::77/64")}
	link, err := netlink.LinkByName("own0")
	if err != nil {
		t.Fatal(err)
	}
	var b Book
	for what, take := range map[string]func() error{
		"nothing":   func() error { return nil },
		"its route": func() error { return takeInNoMore(link, six) },
		"the NIC":   func() error { return netlink.LinkSetDown(link) },
	} {
		for _, err := range []error{b.Ready(next), take(), b.Ready(next)} {
			if err != nil {
				t.Fatal(err)
			}
		}
		wantSix(t, what+" was taken", "own0", nil, []netip.Addr{six})
	}
	if err := b.Ready(other); err != nil {
		t.Fatal(err)
	}
	wantSix(t, "it is another address", "own0", nil, []netip.Addr{other.Addrs[1].Addr()})
	if err := b.Ready(guest.Configure{MAC: next.MAC}); err != nil {
		t.Fatal(err)
	}
}

// TestTakenInIsTaken: a NIC whose route somebody took since, as it was set down, has its addresses all the same when
// its peers come; so it has where the guest's program was started again.
func TestTakenInIsTaken(t *testing.T) {
	next, known := telling(t)
	next = dual(next)
	six := next.Addrs[1].Addr()
	link, err := netlink.LinkByName("own0")
	if err != nil {
		t.Fatal(err)
	}
	want := []mptcp.Endpoint{endpointOf(next, 3), {ID: 4, Addr: six, Dev: "own0", Flags: mptcp.FlagSignal}}
	for what, c := range map[string]struct {
		take  func() error
		again bool
	}{
		"nothing":            {func() error { return nil }, false},
		"its route":          {func() error { return takeInNoMore(link, six) }, false},
		"that and its rule":  {func() error { return errors.Join(takeInNoMore(link, six), unlead(six)) }, false},
		"all":                {func() error { return netlink.LinkSetDown(link) }, false},
		"the program's mind": {func() error { return nil }, true},
	} {
		b := new(Book)
		for _, err := range []error{b.Ready(next), b.Tell(next.MAC), c.take()} {
			if err != nil {
				t.Fatal(err)
			}
		}
		if c.again {
			b.ready[next.MAC].close()
			b = new(Book)
		}
		if made, err := b.Configure(next); err != nil || !slices.Equal(made.EndpointIDs, []uint8{3, 4}) {
			t.Errorf("%s was taken: %+v, %v", what, made, err)
		}
		if err := b.MakeMain(next.MAC); err != nil {
			t.Fatal(err)
		}
		wantOn(t, what+" was taken", "own0", next.Addrs[0].String())
		wantSix(t, what+" was taken", "own0", []netip.Addr{six}, nil)
		if rules, err := rulesFrom(six); err != nil || len(rules) != 1 {
			t.Errorf("%s was taken: rules %v, %v", what, rules, err)
		}
		if got := known(); !slices.Equal(got, want) {
			t.Errorf("%s was taken: told of %v, want %v", what, got, want)
		}
		if err := b.Retire(guest.Retire{Addrs: []netip.Addr{next.Addrs[0].Addr(), six}, MAC: next.MAC}); err != nil {
			t.Fatal(err)
		}
	}
}

// TestJoinsWhatIsTakenIn: a client that was told of an IPv6 address that the guest is ready for comes to it, and is
// answered, before the NIC has it: it knows the MAC of that, as the router of the guest's new host does.
func TestJoinsWhatIsTakenIn(t *testing.T) {
	need.Root(t)
	need.Program(t, "ip")
	client := fmt.Sprintf("t-six-%d", os.Getpid())
	if err := netns.Create(client); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = netns.Delete(client) })
	script := `
ip link set lo up; ip -n CLIENT link set lo up
for i in 1 2; do
	ip link add nic$i address 52:54:00:00:aa:0$i type veth peer name c$i netns CLIENT
	ip -n CLIENT addr add fd00:$i::1/64 dev c$i nodad; ip -n CLIENT link set c$i up
done
ip -n CLIENT neigh add fd00:2::10 lladdr 52:54:00:00:aa:02 dev c2 nud stale`
	t.Cleanup(func() { _ = exec.Command("sh", "-c", "for i in 1 2; do ip link del nic$i; done").Run() })
	t.Cleanup(func() { forgetEndpoints(t) })
	if out, err := exec.Command("sh", "-ec", strings.ReplaceAll(script, "CLIENT", client)).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	limits := func() error { return mptcp.SetLimits(8, 8) }
	if err := netns.Do(client, limits); err != nil {
		t.Fatal(err)
	}
	if err := limits(); err != nil {
		t.Fatal(err)
	}
	var b Book
	nic := func(i int) guest.Configure {
		return guest.Configure{MAC: fmt.Sprintf("52:54:00:00:aa:0%d", i), Table: 100 + i, GatewayV6: netip.MustParseAddr(fmt.Sprintf("fd00:%d::1", i)),
			Addrs: []netip.Prefix{netip.MustParsePrefix(fmt.Sprintf("fd00:%d::10/64", i))}}
	}
	one, two := nic(1), nic(2)
	one.Main, two.Endpoint = true, 3
	if _, err := b.Configure(one); err != nil {
		t.Fatal(err)
	}
	near, far := talk6(t, client, one.Addrs[0].Addr())
	for _, err := range []error{b.Ready(two), b.Tell(two.MAC)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	if !joins(t, "fd00:2::10", 20*time.Second) {
		t.Fatal("nobody came to what is taken in")
	}
	wantSix(t, "joined", "nic2", nil, []netip.Addr{two.Addrs[0].Addr()})
	if made, err := b.Configure(two); err != nil || !slices.Equal(made.EndpointIDs, []uint8{4}) {
		t.Fatalf("%+v, %v", made, err)
	}
	for _, err := range []error{b.MakeMain(two.MAC), b.Retire(guest.Retire{Addrs: []netip.Addr{one.Addrs[0].Addr()}, MAC: one.MAC, NewMAC: two.MAC})} {
		if err != nil {
			t.Fatal(err)
		}
	}
	exchange(t, near, far)
}

// talk6 makes an MPTCP connection from the client to addr, on which data went both ways.
func talk6(t *testing.T, client string, addr netip.Addr) (near, far net.Conn) {
	t.Helper()
	var listening net.ListenConfig
	listening.SetMultipathTCP(true)
	listener, err := listening.Listen(context.Background(), "tcp6", "[::]:7000")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	var dialer net.Dialer
	dialer.SetMultipathTCP(true)
	dialer.Timeout = 20 * time.Second
	err = netns.Do(client, func() (err error) {
		near, err = dialer.Dial("tcp6", netip.AddrPortFrom(addr, 7000).String())
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if far, err = listener.Accept(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { near.Close(); far.Close() })
	exchange(t, near, far)
	return near, far
}

// exchange sends a byte each way.
func exchange(t *testing.T, near, far net.Conn) {
	t.Helper()
	for _, pair := range [][2]net.Conn{{near, far}, {far, near}} {
		pair[1].SetReadDeadline(time.Now().Add(20 * time.Second)) //nolint:errcheck // it has one
		if _, err := pair[0].Write([]byte{1}); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(pair[1], make([]byte, 1)); err != nil {
			t.Fatal(err)
		}
	}
}
