package wan

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"godwit/internal/checksum"
)

// largeSend is what the kernel hands over: a virtio header, IP and transport header for
// the whole, the sum of the pseudo-header where the checksum goes.
func largeSend(version, protocol, size, payload int) []byte {
	ipLen, l4Len, gso, offset := 20, 20, gsoTCP4, 16
	if version == 6 {
		ipLen, gso = 40, gsoTCP6
	}
	if protocol == unix.IPPROTO_UDP {
		l4Len, gso, offset = 8, gsoUDP, 6
	} else {
		l4Len += 12 // options
	}
	raw := make([]byte, vnetLen+ipLen+l4Len+payload)
	raw[0], raw[1] = needsChecksum, byte(gso)
	binary.NativeEndian.PutUint16(raw[2:], uint16(ipLen+l4Len))
	binary.NativeEndian.PutUint16(raw[4:], uint16(size))
	binary.NativeEndian.PutUint16(raw[6:], uint16(ipLen))
	binary.NativeEndian.PutUint16(raw[8:], uint16(offset))
	ip := raw[vnetLen:]
	if version == 6 {
		ip[0], ip[6] = 0x60, byte(protocol)
		binary.BigEndian.PutUint16(ip[4:], uint16(l4Len+payload))
		copy(ip[8:], bytes.Repeat([]byte{0xfd, 0x64}, 16))
	} else {
		ip[0], ip[9] = 0x45, byte(protocol)
		binary.BigEndian.PutUint16(ip[2:], uint16(len(ip)))
		binary.BigEndian.PutUint16(ip[4:], 0xfffe) // the id wraps
		copy(ip[12:], []byte{100, 64, 0, 11, 100, 65, 0, 11})
		binary.BigEndian.PutUint16(ip[10:], checksum.Of(ip[:20]))
	}
	l4 := ip[ipLen:]
	if protocol == unix.IPPROTO_TCP {
		binary.BigEndian.PutUint32(l4[4:], 0xfffffff0) // the sequence number wraps
		l4[12], l4[13] = 8<<4, tcpFIN|tcpPSH|tcpCWR|0x10
	} else {
		binary.BigEndian.PutUint16(l4[4:], uint16(l4Len+payload))
	}
	binary.BigEndian.PutUint16(l4[offset:], pseudoSum(ip, byte(protocol), len(l4)))
	random := rand.New(rand.NewPCG(1, uint64(payload)))
	for i := l4Len; i < len(l4); i++ {
		l4[i] = byte(random.Uint32())
	}
	return raw
}

// finish does what a network card does with a unit, and checks all sums.
func finish(t *testing.T, u *unit, ipLen, protocol int) (ip, l4 []byte) {
	t.Helper()
	packet := append(append([]byte(nil), u.head[:u.headLen]...), u.body...)
	ip = packet[vnetLen:]
	l4 = ip[ipLen:]
	if ip[0]>>4 == 4 {
		if checksum.Sum(ip[:20]) != 0xffff {
			t.Error("ip checksum is wrong")
		}
		if n := int(binary.BigEndian.Uint16(ip[2:])); n != len(ip) {
			t.Errorf("ip length %d of %d", n, len(ip))
		}
	} else if n := int(binary.BigEndian.Uint16(ip[4:])); n != len(l4) {
		t.Errorf("ip payload length %d of %d", n, len(l4))
	}
	offset := int(binary.NativeEndian.Uint16(packet[8:]))
	if got, want := binary.BigEndian.Uint16(l4[offset:]), pseudoSum(ip, byte(protocol), len(l4)); got != want {
		t.Errorf("pseudo-header sum %x, want %x", got, want)
	}
	return ip, l4
}

func TestCutAnywhere(t *testing.T) {
	for _, c := range []struct{ version, protocol, size, payload int }{
		{4, unix.IPPROTO_TCP, 1448, 40 * 1448}, {4, unix.IPPROTO_TCP, 1448, 3*1448 + 1}, {6, unix.IPPROTO_TCP, 1428, 5000},
		{4, unix.IPPROTO_UDP, 1000, 2500}, {6, unix.IPPROTO_UDP, 1200, 12000},
	} {
		raw := largeSend(c.version, c.protocol, c.size, c.payload)
		pkt, ok := parse(raw)
		count := (c.payload + c.size - 1) / c.size
		if !ok || pkt.count != count {
			t.Fatalf("%+v: %d segments, want %d", c, pkt.count, count)
		}
		if wire := pkt.wire(0, count); wire != c.payload+count*pkt.headers {
			t.Errorf("%+v: %d bytes on the wire", c, wire)
		}
		ipLen := 20 + 20*(c.version-4)/2
		for step := 1; step < count; step++ {
			var whole []byte
			for from := 0; from < count; from += step {
				to := min(from+step, count)
				var u unit
				pkt.cut(&u, from, to)
				ip, l4 := finish(t, &u, ipLen, c.protocol)
				if single := u.head[1] == gsoNone; single != (to-from == 1) {
					t.Errorf("%+v: gso type %d for %d segments", c, u.head[1], to-from)
				}
				header := 8
				if c.protocol == unix.IPPROTO_TCP {
					header = 32
					checkTCP(t, l4, 0xfffffff0+uint32(from*c.size), from == 0, to == count)
				} else if n := int(binary.BigEndian.Uint16(l4[4:])); n != len(l4) {
					t.Errorf("%+v: udp length %d of %d", c, n, len(l4))
				}
				if id := binary.BigEndian.Uint16(ip[4:]); c.version == 4 && id != 0xfffe+uint16(from) {
					t.Errorf("%+v: id %x of segment %d", c, id, from)
				}
				whole = append(whole, l4[header:]...)
			}
			if !bytes.Equal(whole, raw[vnetLen+pkt.headers:]) {
				t.Fatalf("%+v: payload changed by cuts of %d", c, step)
			}
		}
	}
}

func checkTCP(t *testing.T, tcp []byte, seq uint32, first, last bool) {
	t.Helper()
	if got := binary.BigEndian.Uint32(tcp[4:]); got != seq {
		t.Errorf("sequence number %x, want %x", got, seq)
	}
	if got := tcp[13]&tcpCWR != 0; got != first {
		t.Errorf("CWR %v", got)
	}
	if got := tcp[13]&(tcpFIN|tcpPSH) != 0; got != last {
		t.Errorf("FIN, PSH %v", got)
	}
}

func TestWholePacketIsNotTouched(t *testing.T) {
	raw := largeSend(4, unix.IPPROTO_TCP, 1448, 10000)
	before := bytes.Clone(raw)
	pkt, _ := parse(raw)
	var u unit
	pkt.cut(&u, 0, pkt.count)
	if u.headLen != 0 || !bytes.Equal(u.body, before) || u.packets != 7 {
		t.Errorf("unit of %d packets, %d bytes of new header", u.packets, u.headLen)
	}
}

func TestParseLeavesNonsenseAlone(t *testing.T) {
	good := largeSend(4, unix.IPPROTO_TCP, 1448, 5000)
	for name, spoil := range map[string]func(b []byte) []byte{
		"no checksum asked for": func(b []byte) []byte { b[0] = 0; return b },
		"segment size 0":        func(b []byte) []byte { b[4], b[5] = 0, 0; return b },
		"start behind the end":  func(b []byte) []byte { b[6], b[7] = 0xff, 0xff; return b },
		"start within ip":       func(b []byte) []byte { b[6], b[7] = 4, 0; return b },
		"headers only":          func(b []byte) []byte { return b[:vnetLen+52] },
		"short tcp":             func(b []byte) []byte { return b[:vnetLen+30] },
		"unknown type":          func(b []byte) []byte { b[1] = 99; return b },
	} {
		pkt, ok := parse(spoil(bytes.Clone(good)))
		if !ok || pkt.count != 1 {
			t.Errorf("%s: %v, %d segments", name, ok, pkt.count)
		}
	}
	if _, ok := parse(good[:vnetLen+19]); ok {
		t.Error("19 bytes are a packet")
	}
}

// TestPipeSpacesLargeSends: a large send comes out at the link's rate, not at once.
func TestPipeSpacesLargeSends(t *testing.T) {
	r := newRig(Link{Rate: 100e6})
	room := r.slabs.room()
	n := copy(room, largeSend(4, unix.IPPROTO_TCP, 1448, 40*1448))
	pkt, _ := parse(room[:n])
	r.offer(0, &pkt, r.slabs.current)
	r.slabs.keep(n)
	r.run(time.Hour)
	bytes, packets := 0, 0
	for i, d := range r.out {
		bytes += d.wire
		packets += d.packets
		if want := time.Duration(bytes) * 80; d.at < want-100 || d.at > want+100 {
			t.Errorf("unit %d at %v, want %v", i, d.at, want)
		}
		if took := time.Duration(d.wire) * 80; took > grain {
			t.Errorf("unit %d takes %v", i, took)
		}
	}
	if packets != 40 || bytes != 40*1500 || r.flow.Bytes != 40*1500 {
		t.Errorf("%d packets, %d bytes", packets, bytes)
	}
}

// TestPipeTakesALargeSendWhenIdle: the longest send there is fits on an idle link whose queue is
// the shortest default one, as its sender's own card would space it.
func TestPipeTakesALargeSendWhenIdle(t *testing.T) {
	for _, rate := range []int64{100e6, 1e9, 10e9} {
		r := newRig(Link{Rate: rate})
		room := r.slabs.room()
		n := copy(room, largeSend(4, unix.IPPROTO_TCP, 1448, 44*1448))
		pkt, _ := parse(room[:n])
		r.offer(0, &pkt, r.slabs.current)
		r.slabs.keep(n)
		r.run(time.Hour)
		if r.flow.QueueDrop != 0 || r.flow.Packets != 44 {
			t.Errorf("%d bit/s: %d packets of 44, %d dropped", rate, r.flow.Packets, r.flow.QueueDrop)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add(largeSend(4, unix.IPPROTO_TCP, 1448, 5000), uint8(2))
	f.Add(largeSend(6, unix.IPPROTO_UDP, 1000, 5000), uint8(1))
	f.Fuzz(func(t *testing.T, raw []byte, step uint8) {
		pkt, ok := parse(raw[:min(len(raw), maxPacket)])
		if !ok {
			return
		}
		for from, n := 0, max(1, int(step)); from < pkt.count; from += n {
			var u unit
			pkt.cut(&u, from, min(from+n, pkt.count))
			if u.headLen > 0 && len(u.body) == 0 {
				t.Fatal("a unit without payload")
			}
		}
	})
}
