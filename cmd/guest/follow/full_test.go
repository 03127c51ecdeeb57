package follow

import (
	"fmt"
	"net/netip"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"godwit/internal/need"
	"godwit/netstate/mptcp"
	"godwit/netstate/netns"
	"godwit/vm/guest"
)

// TestClientThatWasFull: a client of four addresses was told again of where the guest went, for another's sake, and had
// as many subflows as its kernel makes: it takes no address any more before it hears that one of those that it took
// is withdrawn. What it was told again is, once that other does not need it, and the client follows the next move.
func TestClientThatWasFull(t *testing.T) {
	setUp(t)
	client := elsewhere(t)
	if out, err := exec.Command("ip", "addr", "add", "10.9.4.3/24", "dev", "srv0").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	mesh(t, client, "10.9.4.9", "10.9.4.10", "10.9.4.11", "10.9.4.12")
	places := []netip.Addr{netip.MustParseAddr("10.9.4.1"), netip.MustParseAddr("10.9.4.2"), netip.MustParseAddr("10.9.4.3")}
	near, far := talk(t, client, "0.0.0.0", places[0], false)
	other, otherFar := talk(t, beside(t), "0.0.0.0", places[0], true) // it comes by a port of the kernel's alone
	for i, next := range places[1:] {
		id := uint8(11 + 10*i) //nolint:gosec // 21 at most
		if err := mptcp.AddEndpoint(mptcp.Endpoint{ID: id, Addr: next, Flags: mptcp.FlagSignal}); err != nil {
			t.Fatal(err)
		}
		joins, err := Await(t.Context(), awaitOf(next, places[i], id+1, id+2, id+3, id+4), new(Stayed), new(Moves), func(int, int) {})
		if err != nil || joins.Joined != 2 || joins.Total != 2 {
			t.Fatalf("move %d: %+v, %v: want that both have come", i+1, joins, err)
		}
		leave(t, places[i])
		Tidy()
		echo(t, near, far)
		echo(t, other, otherFar)
	}
}

// TestClientThatWasFullByBothFamilies: as many subflows as its kernel makes come from four addresses of each family,
// too, as it is told of one of each. Of two moves it followed the first.
func TestClientThatWasFullByBothFamilies(t *testing.T) {
	setUp(t)
	client := elsewhere(t)
	for _, addr := range []string{"10.9.4.3/24", "fd09:4::1/64", "fd09:4::2/64", "fd09:4::3/64"} {
		if out, err := exec.Command("ip", "addr", "add", addr, "dev", "srv0", "nodad").CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	mesh(t, client, "10.9.4.9", "10.9.4.10", "10.9.4.11", "10.9.4.12", "fd09:4::9", "fd09:4::10", "fd09:4::11", "fd09:4::12")
	at := func(n int) []netip.Addr {
		return []netip.Addr{netip.MustParseAddr(fmt.Sprintf("10.9.4.%d", n)), netip.MustParseAddr(fmt.Sprintf("fd09:4::%d", n))}
	}
	near, far := talk(t, client, "", at(1)[1], false)
	for n := 2; n <= 3; n++ {
		id := uint8(10 * n) //nolint:gosec // 30 at most
		for i, next := range at(n) {
			if err := mptcp.AddEndpoint(mptcp.Endpoint{ID: id + uint8(i), Addr: next, Flags: mptcp.FlagSignal}); err != nil { //nolint:gosec // one of two
				t.Fatal(err)
			}
		}
		joins, err := Await(t.Context(), guest.AwaitJoin{Addrs: at(n), Old: at(n - 1), LimitMS: 10_000, SpareIDs: []uint8{id + 2, id + 3, id + 4, id + 5}},
			new(Stayed), new(Moves), func(int, int) {})
		if err != nil || joins.Joined != 1 || joins.Total != 1 {
			t.Fatalf("move %d: %+v, %v: want that it has come", n-1, joins, err)
		}
		if n == 2 {
			awaitSubflow(t, at(n)[1])
		}
		for _, old := range at(n - 1) {
			leave(t, old)
		}
		Tidy()
		echo(t, near, far)
	}
}

// awaitSubflow waits until a connection has a subflow on an address.
func awaitSubflow(t *testing.T, addr netip.Addr) {
	t.Helper()
	for limit := need.Patient(20 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		connections, err := mptcp.Connections()
		if err != nil {
			t.Fatal(err)
		}
		if slices.ContainsFunc(connections, func(c mptcp.Connection) bool { return c.On([]netip.Addr{addr}, mptcp.StateEstablished) }) {
			return
		}
		if limit.Over() {
			t.Fatalf("nobody joins %s", addr)
		}
	}
}

// beside makes another client, on a wire of its own.
func beside(t *testing.T) (client string) {
	t.Helper()
	return wired(t, "t-beside", "srv1", `
ip addr add 10.9.5.1/24 dev srv1; ip link set srv1 up
ip -n CLIENT addr add 10.9.5.9/24 dev c0; ip -n CLIENT link set c0 up; ip -n CLIENT route add default via 10.9.5.1`)
}

// mesh gives a client addresses, from each of which its kernel joins whatever it is told of.
func mesh(t *testing.T, client string, addrs ...string) {
	t.Helper()
	for i, addr := range addrs {
		bits := "/24"
		if strings.Contains(addr, ":") {
			bits = "/64"
		}
		if out, err := exec.Command("ip", "-n", client, "addr", "replace", addr+bits, "dev", "c0", "nodad").CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		if err := netns.Do(client, func() error {
			return mptcp.AddEndpoint(mptcp.Endpoint{ID: uint8(i + 1), Addr: netip.MustParseAddr(addr), Dev: "c0", Flags: mptcp.FlagSubflow | mptcp.FlagFullmesh}) //nolint:gosec // a few
		}); err != nil {
			t.Fatal(fmt.Errorf("%s: %w", addr, err))
		}
	}
}

// leave withdraws an old address, as it is retired.
func leave(t *testing.T, old netip.Addr) {
	t.Helper()
	endpoints, err := mptcp.Endpoints()
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range append(endpoints, mptcp.Endpoint{Addr: old}) {
		if e.Addr != old {
			continue
		}
		if err := mptcp.DelEndpoint(e.ID, e.Addr); err != nil {
			t.Fatal(err)
		}
	}
}
