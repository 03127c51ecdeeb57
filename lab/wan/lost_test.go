package wan

import (
	"encoding/binary"
	"math/rand/v2"
	"net/netip"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"pgregory.net/rapid"
)

// tunnelPacket is a datagram between two ends of a tunnel as it is on a link of 1500: the
// IP packets that it travels in. message is WireGuard's type.
func tunnelPacket(version int, id uint32, payload int, message byte) [][]byte {
	data := make([]byte, 8+payload)
	binary.BigEndian.PutUint16(data, 5001)
	binary.BigEndian.PutUint16(data[2:], 5002)
	binary.BigEndian.PutUint16(data[4:], uint16(len(data)))
	data[8] = message
	room := 1480
	if version == 6 {
		room = 1448
	}
	var out [][]byte
	for offset := 0; offset < len(data); offset += room {
		part := data[offset:min(offset+room, len(data))]
		more := offset+room < len(data)
		whole := !more && offset == 0
		out = append(out, append(ipHeader(version, id, len(part), offset, more, whole), part...))
	}
	return out
}

func ipHeader(version int, id uint32, length, offset int, more, whole bool) []byte {
	if version == 4 {
		ip := make([]byte, 20)
		ip[0], ip[9] = 0x45, unix.IPPROTO_UDP
		binary.BigEndian.PutUint16(ip[2:], uint16(20+length))
		binary.BigEndian.PutUint16(ip[4:], uint16(id))
		binary.BigEndian.PutUint16(ip[6:], uint16(offset/8))
		if more {
			ip[6] |= 0x20
		}
		copy(ip[12:], []byte{100, 64, 0, 11, 100, 65, 0, 11})
		return ip
	}
	ip := make([]byte, 40, 48)
	ip[0], ip[6] = 0x60, unix.IPPROTO_UDP
	ip[8], ip[23], ip[24], ip[39] = 0xfd, 1, 0xfd, 2
	if whole {
		binary.BigEndian.PutUint16(ip[4:], uint16(length))
		return ip
	}
	ip[6] = unix.IPPROTO_FRAGMENT
	binary.BigEndian.PutUint16(ip[4:], uint16(8+length))
	ip = append(ip, unix.IPPROTO_UDP, 0, 0, 0, 0, 0, 0, 0)
	binary.BigEndian.PutUint16(ip[42:], uint16(offset))
	if more {
		ip[43] |= 1
	}
	binary.BigEndian.PutUint32(ip[44:], id)
	return ip
}

// give offers IP packets, and keeps what comes of it.
func (r *rig) give(now time.Duration, packets ...[]byte) {
	for _, ip := range packets {
		room := r.slabs.room()[:vnetLen+len(ip)]
		clear(room[:vnetLen])
		copy(room[vnetLen:], ip)
		r.giveRaw(now, room)
	}
}

func (r *rig) giveRaw(now time.Duration, room []byte) {
	pkt, ok := parse(room)
	if !ok {
		panic("not a packet")
	}
	refs := r.slabs.current.refs
	r.offer(now, &pkt, r.slabs.current)
	if r.slabs.current.refs > refs {
		r.slabs.keep(len(room))
	}
}

// sum is how many datagrams were lost.
func (l *lost) sum() (n uint64) {
	for _, x := range l.list(nil) {
		n += x.Datagrams
	}
	return n
}

func TestLostTellsWhose(t *testing.T) {
	for version, ends := range map[int][2]string{4: {"100.64.0.11:5001", "100.65.0.11:5002"}, 6: {"[fd00::1]:5001", "[fd00::2]:5002"}} {
		for _, payload := range []int{112, 1532} {
			r := newRig(Link{Loss: 1})
			r.give(0, tunnelPacket(version, 7, payload, dataMessage)...)
			r.give(0, tunnelPacket(version, 8, payload, dataMessage)...)
			want := Lost{Src: netip.MustParseAddrPort(ends[0]), Dst: netip.MustParseAddrPort(ends[1]), Length: payload, Datagrams: 2}
			if got := r.lost.list(nil); len(got) != 1 || got[0] != want {
				t.Errorf("v%d, %d bytes: %+v, want %+v", version, payload, got, want)
			}
		}
	}
}

func TestLostIsOfTunnelsOnly(t *testing.T) {
	r := newRig(Link{Loss: 1})
	for _, message := range []byte{0, 1, 2, 3, 5, 0x44} { // 1 to 3 are handshakes
		r.give(0, tunnelPacket(4, 1, 148, message)...)
	}
	r.give(0, tunnelPacket(4, 1, 1532, 1)...)
	r.give(0, tunnelPacket(4, 1, keepalive, dataMessage)...)
	other := tunnelPacket(4, 1, 112, dataMessage)[0]
	other[9] = unix.IPPROTO_TCP
	r.give(0, other)
	if r.lost.sum() != 0 || r.flow.LossDrop != 10 {
		t.Errorf("%+v of %d drops", r.lost.list(nil), r.flow.LossDrop)
	}
}

// TestLostByWhatever: by the queue, by a cut of what comes, and of what is in the queue or
// in the line; not by a device.
func TestLostByWhatever(t *testing.T) {
	packet := tunnelPacket(4, 1, 972, dataMessage) // 1000 bytes
	r := newRig(Link{Rate: 8000, Delay: 10 * second, Queue: 2500})
	r.give(0, packet[0], packet[0], packet[0])
	if r.lost.sum() != 1 {
		t.Errorf("by the queue: %d of 1", r.lost.sum())
	}
	r.set(second+1, r.link, false)
	if r.lost.sum() != 3 {
		t.Errorf("by a cut, under way: %d of 3", r.lost.sum())
	}
	r.give(2*second, packet[0])
	if r.lost.sum() != 4 {
		t.Errorf("by a cut: %d of 4", r.lost.sum())
	}
	r.set(3*second, r.link, true)
	r.give(3*second, packet[0])
	r.taken(r.take(time.Hour), false)
	if r.lost.sum() != 4 || r.flow.DeviceDrop != 1 {
		t.Errorf("by a device: %d of 4", r.lost.sum())
	}
}

// TestLostFragments: a datagram counts once, where all of it came.
func TestLostFragments(t *testing.T) {
	for _, version := range []int{4, 6} {
		for _, c := range []struct {
			name      string
			came      []int // fragments, in this order
			dropped   []bool
			want      uint64
			fragments int
		}{
			{"none", []int{0, 1}, []bool{false, false}, 0, 2},
			{"the first", []int{0, 1}, []bool{true, false}, 1, 2},
			{"the second", []int{0, 1}, []bool{false, true}, 1, 2},
			{"both", []int{0, 1}, []bool{true, true}, 1, 2},
			{"the second comes first", []int{1, 0}, []bool{true, false}, 1, 2},
			{"the first was lost elsewhere", []int{1}, []bool{true}, 0, 2},
			{"the second was lost elsewhere", []int{0}, []bool{true}, 0, 2},
			{"one of three", []int{0, 1, 2}, []bool{false, true, false}, 1, 3},
			{"all but one of three came", []int{0, 2}, []bool{true, true}, 0, 3},
		} {
			packets := tunnelPacket(version, 9, 1532+1480*(c.fragments-2), dataMessage)
			if len(packets) != c.fragments {
				t.Fatalf("%d fragments", len(packets))
			}
			var l lost
			for i, f := range c.came {
				l.came(packets[f])
				if c.dropped[i] {
					l.one(packets[f])
				}
			}
			if l.sum() != c.want {
				t.Errorf("v%d, %s: %d, want %d", version, c.name, l.sum(), c.want)
			}
		}
	}
}

// TestLostOfLargeSends: each segment is a datagram.
func TestLostOfLargeSends(t *testing.T) {
	for _, version := range []int{4, 6} {
		raw := largeSend(version, unix.IPPROTO_UDP, 1000, 4500)
		start := len(raw) - 4500
		for i := range 5 {
			binary.LittleEndian.PutUint32(raw[start+i*1000:], dataMessage)
		}
		binary.LittleEndian.PutUint32(raw[start+1000:], 1) // one is a handshake
		r := newRig(Link{Loss: 1})
		r.giveRaw(0, append(r.slabs.room()[:0], raw...))
		if r.lost.sum() != 4 {
			t.Errorf("v%d, by loss: %d of 4", version, r.lost.sum())
		}
		r = newRig(Link{Rate: 8e6, Queue: 3300})
		r.giveRaw(0, append(r.slabs.room()[:0], raw...)) // three have room
		if r.lost.sum() != 2 {
			t.Errorf("v%d, by the queue: %d of 2", version, r.lost.sum())
		}
		r.set(0, r.link, false)
		if r.lost.sum() != 4 {
			t.Errorf("v%d, by a cut: %d of 4", version, r.lost.sum())
		}
		r = newRig(Link{Delay: second})
		r.giveRaw(0, append(r.slabs.room()[:0], raw...))
		r.set(0, r.link, false)
		if r.lost.sum() != 4 {
			t.Errorf("v%d, whole: %d of 4", version, r.lost.sum())
		}
	}
}

// TestLostIsWhatDoesNotArrive: over two links in a row, what was sent and did not come out
// whole is what the two counted together.
func TestLostIsWhatDoesNotArrive(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		version := rapid.SampledFrom([]int{4, 6}).Draw(rt, "version")
		random := rand.New(rand.NewPCG(rapid.Uint64().Draw(rt, "seed"), 1))
		share := rapid.SampledFrom([]float64{0, 0.05, 0.5, 1}).Draw(rt, "share")
		var links [2]lost
		sent, arrived := uint64(0), uint64(0)
		for id := range uint32(rapid.IntRange(1, 500).Draw(rt, "datagrams")) {
			sent++
			whole := true
		fragments:
			for _, p := range tunnelPacket(version, id, 1532, dataMessage) {
				for i := range links {
					links[i].came(p)
					if random.Float64() < share {
						links[i].one(p)
						whole = false
						continue fragments
					}
				}
			}
			if whole {
				arrived++
			}
		}
		if got := links[0].sum() + links[1].sum(); got != sent-arrived {
			rt.Fatalf("%d counted, and %d did not arrive", got, sent-arrived)
		}
	})
}

func TestLostIsBounded(t *testing.T) {
	var l lost
	p := tunnelPacket(4, 1, 112, dataMessage)[0]
	for port := range 2 * mostLost {
		binary.BigEndian.PutUint16(p[20:], uint16(port))
		l.one(p)
		l.one(p)
	}
	if got := l.list(nil); len(got) != mostLost || l.sum() != 2*mostLost {
		t.Errorf("%d flows, %d datagrams", len(got), l.sum())
	}
	for id := range uint32(2*mostCut + 5) {
		first := tunnelPacket(4, id, 1532, dataMessage)[0]
		binary.BigEndian.PutUint16(first[14:], uint16(id>>16)) // the number has 16 bits
		l.came(first)
	}
	if len(l.cuts) != mostCut || len(l.byKey) != mostCut {
		t.Errorf("%d datagrams in fragments are remembered, %d of them found", len(l.cuts), len(l.byKey))
	}
}

func FuzzLost(f *testing.F) {
	f.Add(tunnelPacket(4, 1, 1532, dataMessage)[0], tunnelPacket(4, 1, 1532, dataMessage)[1])
	f.Add(tunnelPacket(6, 1, 1532, dataMessage)[0], tunnelPacket(6, 1, 112, dataMessage)[0])
	f.Add(largeSend(6, unix.IPPROTO_UDP, 1000, 5000)[vnetLen:], []byte{0x45})
	f.Fuzz(func(t *testing.T, a, b []byte) {
		r := newRig(Link{Loss: 1})
		for range 2 {
			for _, ip := range [][]byte{a, b} {
				if len(ip) >= 20 && len(ip) <= 65535 {
					r.give(0, ip)
				}
			}
		}
		if r.lost.sum() > r.flow.LossDrop {
			t.Fatalf("%d lost in %d drops", r.lost.sum(), r.flow.LossDrop)
		}
	})
}

func BenchmarkFragments(b *testing.B) {
	var l lost
	packets := tunnelPacket(4, 1, 1532, dataMessage)
	for i := range b.N {
		for _, p := range packets {
			binary.BigEndian.PutUint16(p[4:], uint16(i))
			l.came(p)
		}
	}
}
