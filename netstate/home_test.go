package netstate_test

import (
	"context"
	"encoding/binary"
	"errors"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"testing"
	"time"

	"godwit/internal/need"
	"godwit/netstate"
	"godwit/netstate/internal/nettest"
)

// TestComesHome: an address that was away is led to its guest's new tap here, which is open
// while it is away, and no datagram of 1 kHz in each family is lost; three times.
func TestComesHome(t *testing.T) {
	w := newWorld(t, "wireguard")
	a, b := w.echo("ga"), w.echo("gb")
	w.knowsRouter()
	w.set("hb", abroad())
	w.set("ha", left())
	stream4, stream6 := w.stream(guest4, 1), w.stream(guest6, 1<<24)
	for range 3 {
		goOn(stream4, stream6)
		w.set("ha", returned())
		goOn(stream4, stream6)
		w.set("ha", home(false))
		w.flip(true)
		w.set("ha", left())
	}
	goOn(stream4, stream6)
	stream4.end(t, a, b)
	stream6.end(t, a, b)
	if a.count() < 100 || b.count() < 100 {
		t.Errorf("%d datagrams at home, %d abroad", a.count(), b.count())
	}
}

// TestKnownByAnotherMAC: a guest came home with another NIC than it left with: what neighbours
// still send to that one's MAC reaches it, as does what they send to its own.
func TestKnownByAnotherMAC(t *testing.T) {
	w := newWorld(t, "vxlan")
	w.echo("ga")
	w.knowsRouter()
	s := returned()
	for i := range s.Visiting {
		s.Visiting[i].Known = mac("52:54:00:00:01:0b")
	}
	w.set("ha", s)
	for _, addr := range []netip.Addr{guest4, guest6} {
		for _, known := range []string{s.Visiting[0].Known.String(), guestMAC.String()} {
			w.IP("r", "neigh replace "+addr.String()+" dev lana nud permanent lladdr "+known)
			if !w.answers(addr, 2*time.Second) {
				t.Errorf("%s, known as %s, does not answer", addr, known)
			}
		}
	}
	w.Do("ha", func() error {
		inv, err := netstate.Found()
		if got := inv.States["web"].Visiting; len(got) != 2 || got[1].Known.String() != s.Visiting[1].Known.String() {
			t.Errorf("found %+v", got)
		}
		return err
	})
}

// TestAnswerToItsOtherNIC: a guest that came home takes its address to its other NIC, and asks there for its router before
// it has said so: the router answers that NIC, and what neighbours say to each other is not routed, or it is dropped.
func TestAnswerToItsOtherNIC(t *testing.T) {
	w := newWorld(t, "vxlan")
	s := returned()
	other := mac("52:54:00:00:01:0b")
	for i := range s.Visiting {
		s.Visiting[i].Known = other
	}
	w.set("ha", s)
	w.IP("ga", "link set dev eth0 address "+other.String()) // and the kernel knows no neighbour any more
	for _, gateway := range []netip.Addr{gateway4, gateway6} {
		w.Do("ga", func() error {
			conn, err := net.Dial("udp", netip.AddrPortFrom(gateway, 9).String())
			if err != nil {
				return err
			}
			defer conn.Close()
			_, err = conn.Write([]byte{0})
			return err
		})
		nettest.Eventually(t, "the guest finds its router "+gateway.String(), long, func() bool {
			return strings.Contains(w.Run("ga", "ip", "neigh", "show", "to", gateway.String(), "dev", "eth0"), "lladdr")
		})
	}
}

// TestKnownByAnotherMACWhileAway: what neighbours send to a guest that has left reaches it, whichever of its MACs they
// know; and they are answered when they ask there whether it still has its address.
func TestKnownByAnotherMACWhileAway(t *testing.T) {
	w := newWorld(t, "vxlan")
	w.echo("gb")
	other := mac("52:54:00:00:01:0b")
	s := home(true)
	for i := range s.Away {
		s.Away[i].Known = other
	}
	w.set("hb", abroad())
	w.set("ha", s)
	for _, addr := range []netip.Addr{guest4, guest6} {
		for _, known := range []string{guestMAC.String(), other.String()} {
			w.IP("r", "neigh replace "+addr.String()+" dev lana nud permanent lladdr "+known)
			if !w.answers(addr, 2*time.Second) {
				t.Errorf("%s, known as %s, does not answer", addr, known)
			}
			w.IP("r", "neigh replace "+addr.String()+" dev lana nud probe lladdr "+known)
			for p := need.Patient(long); ; time.Sleep(20 * time.Millisecond) {
				if now := w.Run("r", "ip", "neigh", "show", "to", addr.String(), "dev", "lana"); strings.Contains(now, "REACHABLE") {
					break
				} else if p.Over() {
					t.Errorf("%s, asked for at %s: %s", addr, known, now)
					break
				}
			}
		}
	}
	w.Do("ha", func() error {
		inv, err := netstate.Found()
		if got := inv.States["web"].Away; len(got) != 2 || got[1].Known.String() != other.String() {
			t.Errorf("found %+v", got)
		}
		return err
	})
}

// TestNeighboursFollowWhoLeaves: a visitor goes home to another host on this link: what neighbours still send here, to
// either MAC of its guest, goes there, and what it sends goes its old way; when it stays after all, all is as before.
func TestNeighboursFollowWhoLeaves(t *testing.T) {
	w := newWorld(t, "vxlan")
	a, b := w.echo("ga"), w.echo("gb")
	w.knowsRouter()
	w.set("hb", abroad())
	visits, other := abroad(), leaving(false).Visiting[0].Known
	w.set("ha", visits)
	filtered := func() string {
		return strings.Fields(w.Run("ha", "nstat", "-asz", "TcpExtIPReversePathFilter"))[2]
	}
	before, says := filtered(), w.dialFrom("ga", netip.MustParseAddr("198.18.0.10"))
	for i, addr := range []netip.Addr{guest4, guest6} {
		for _, known := range []string{guestMAC.String(), other.String()} {
			leaves := abroad()
			for _, active := range []bool{false, true} {
				leaves.Visiting[i] = leaving(active).Visiting[i]
				w.set("ha", leaves)
			}
			w.IP("r", "neigh replace "+addr.String()+" dev lana nud permanent lladdr "+known)
			if !w.arrives(addr, b) {
				t.Errorf("%s, known as %s, does not reach its guest", addr, known)
			}
			for range 3 {
				if _, err := says.Write([]byte("bye")); err != nil {
					t.Fatal(err)
				}
				time.Sleep(20 * time.Millisecond)
			}
			if now := filtered(); now != before {
				t.Errorf("%s packets did not pass ha's reverse path filter, %s before", now, before)
			}
			w.Do("ha", func() error {
				inv, err := netstate.Found()
				if got := inv.States["web"].Visiting; len(got) != 2 || got[i].Leaves != "gw0" || !got[i].Active || got[i].Known.String() != other.String() {
					t.Errorf("found %+v", got)
				}
				return err
			})
			w.set("ha", visits)
			w.IP("r", "neigh replace "+addr.String()+" dev lana nud permanent lladdr "+guestMAC.String())
			if !w.arrives(addr, a) {
				t.Errorf("%s stays, and is not reached", addr)
			}
		}
	}
}

// arrives says whether a datagram to addr comes to a guest within some time.
func (w *world) arrives(addr netip.Addr, guest *echoer) bool {
	w.t.Helper()
	conn := w.dial(addr)
	defer conn.Close()
	before := guest.count()
	for p, number := need.Patient(long), uint32(before+1); !p.Over(); time.Sleep(5 * time.Millisecond) {
		if _, err := conn.Write(binary.BigEndian.AppendUint32(nil, number)); err != nil {
			w.t.Fatal(err)
		}
		if guest.count() > before {
			return true
		}
	}
	return false
}

// TestNeighboursFindAGuestAtHome: a router that has forgotten a guest that came home asks anew,
// and is answered: what neighbours tell each other is not led by the host.
func TestNeighboursFindAGuestAtHome(t *testing.T) {
	w := newWorld(t, "vxlan")
	w.echo("ga")
	w.knowsRouter()
	w.set("ha", returned())
	for _, addr := range []netip.Addr{guest4, guest6} {
		w.IP("r", "neigh del "+addr.String()+" dev lana")
		if !w.answers(addr, 2*time.Second) {
			t.Errorf("%s is not found", addr)
		}
	}
}

// knowsRouter spares ga to ask for its router: while it is away it is not really there.
func (w *world) knowsRouter() {
	router := w.Run("r", "cat", "/sys/class/net/lana/address")
	for _, gateway := range []netip.Addr{gateway4, gateway6} {
		w.IP("ga", "neigh replace "+gateway.String()+" dev eth0 nud permanent lladdr "+router)
	}
}

// left is home's state when the guest is gone: no tap is closed, one may be made for its
// return.
func left() netstate.State {
	s := home(true)
	s.Taps = nil
	for i := range s.Away {
		s.Away[i].Tap = ""
	}
	return s
}

// TestCameBackWithoutOne: a guest is back with one of its addresses, and its home leads another one away still, which
// it gave up elsewhere: that closes none of the taps that it has now.
func TestCameBackWithoutOne(t *testing.T) {
	w := newWorld(t, "vxlan")
	w.echo("ga")
	w.knowsRouter()
	s, back := left(), returned()
	s.Taps, s.Away, s.Visiting = back.Taps, s.Away[1:], back.Visiting[:1]
	w.set("ha", s)
	if !w.answers(guest4, long) {
		t.Errorf("the guest is not reached by %s, which it has, while %s is led away", guest4, s.Away[0].Addr)
	}
}

// returned is home's state of a guest that is back.
func returned() netstate.State {
	s := abroad()
	for i := range s.Visiting {
		s.Visiting[i].Tunnel = ""
	}
	return s
}

// TestTaken: the answer comes behind all that was sent to the NIC before, however long its
// queue is; who does not have the address does not answer; nobody else hears of it.
func TestTaken(t *testing.T) {
	w := newWorld(t, "vxlan")
	w.echo("ga")
	w.Run("ha", "tc", "qdisc", "add", "dev", "t1a", "root", "tbf", "rate", "500kbit", "burst", "4kb", "limit", "1mb")
	w.Run("ga", "nft", `add table inet came
		add chain inet came in { type filter hook prerouting priority -300; }
		add rule inet came in udp dport 7007 counter`)
	came := func() string { // its NIC has taken so many: its program is another matter
		_, after, _ := strings.Cut(w.Run("ga", "nft", "list", "table", "inet", "came"), "packets ")
		packets, _, _ := strings.Cut(after, " ")
		return packets
	}
	number := uint32(0)
	taken := func(addr netip.Addr) (waited bool) {
		const datagrams = 60 // 1 s
		conn := w.dial(addr)
		for range datagrams {
			number++
			if _, err := conn.Write(append(binary.BigEndian.AppendUint32(nil, number), make([]byte, 1000)...)); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(50 * time.Millisecond) // they are at the host
		waited = came() != strconv.Itoa(int(number))
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		w.Do("ha", func() error { return netstate.Taken(ctx, "t1a", guestMAC, addr) })
		if got := came(); got != strconv.Itoa(int(number)) {
			t.Errorf("%s: %s of %d datagrams were taken", addr, got, number)
		}
		return waited
	}
	for _, addr := range []netip.Addr{guest4, guest6} {
		waited := false
		for try := 0; try < 5 && !waited; try++ { // a machine may stand still for as long as they wait
			waited = taken(addr)
		}
		if !waited {
			t.Errorf("%s: nothing waits", addr)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	w.Do("ha", func() error {
		if err := netstate.Taken(ctx, "t1a", guestMAC, netip.MustParseAddr("10.1.1.77")); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("an address that it does not have: %v", err)
		}
		return nil
	})
}
