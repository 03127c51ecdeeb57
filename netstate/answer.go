package netstate

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"time"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"

	"godwit/internal/sockfilter"
)

// betweenAnswers bounds how many questions of a guest are looked at.
const betweenAnswers = 5 * time.Millisecond

// An Answerer answers a guest, at its tap, for the neighbours that it had on its own link: it looks for them
// here, by ARP and neighbour solicitations, and they are behind the tunnel.
type Answerer struct {
	tap  *os.File // a packet socket there
	mac  net.HardwareAddr
	of   []netip.Prefix
	but  []netip.Addr
	may  func() bool
	done chan struct{}
}

// Answer begins to answer at the tap device, in the network namespace of the calling thread: who asks by an
// address among of for another of its subnet finds it at mac, the bridge's, as whatever goes there from such an
// address takes the way to its home (Visiting). A question whether an address is free names no sender, and stays
// without an answer; so does one for a router, which is among but, and answered for as such. It goes on as long
// as may says so; until Close, or the tap goes. Nobody else hears it: it does not cross the bridge.
func Answer(device string, mac net.HardwareAddr, of []netip.Prefix, but []netip.Addr, may func() bool) (*Answerer, error) {
	ifi, err := net.InterfaceByName(device)
	if err != nil {
		return nil, fmt.Errorf("answer at %s: %w", device, err)
	}
	fd, err := hear(ifi.Index, filterQuestions)
	if err != nil {
		return nil, fmt.Errorf("answer at %s: %w", device, err)
	}
	s := &Answerer{tap: os.NewFile(uintptr(fd), "answers at "+device), mac: mac, of: of, but: but, may: may, done: make(chan struct{})}
	go s.serve()
	return s, nil
}

// Done is closed when it answers nothing more.
func (s *Answerer) Done() <-chan struct{} { return s.done }

// Close ends it.
func (s *Answerer) Close() error {
	err := s.tap.Close()
	<-s.done
	return err
}

func (s *Answerer) serve() {
	defer close(s.done)
	buf := make([]byte, 2048)
	for {
		n, err := s.tap.Read(buf)
		if err != nil {
			return // the tap is down, or gone
		}
		if f := s.answer(buf[:n]); f != nil && s.may() {
			_, _ = s.tap.Write(f) // lost: it is asked again
		}
		time.Sleep(betweenAnswers)
	}
}

// answer is the frame that answers a question; nil: it is not for us.
func (s *Answerer) answer(f []byte) []byte {
	if len(f) >= 42 && bytes.Equal(f[12:22], []byte{8, 6, 0, 1, 8, 0, 6, 4, 0, arpAsk}) {
		from, target := netip.AddrFrom4([4]byte(f[28:32])), netip.AddrFrom4([4]byte(f[38:42]))
		if s.asks(from) && s.stands(target) {
			return arp(arpTell, s.mac, f[6:12], target, f[22:28], from)
		}
	}
	if len(f) >= 78 && binary.BigEndian.Uint16(f[12:]) == unix.ETH_P_IPV6 && f[20] == unix.IPPROTO_ICMPV6 && f[21] == 255 && f[54] == neighbourAsks {
		from, target := netip.AddrFrom16([16]byte(f[22:38])), netip.AddrFrom16([16]byte(f[62:78]))
		if (s.asks(from) || from.IsLinkLocalUnicast()) && s.stands(target) {
			// Solicited, without override: one that is here, too, goes before it (RFC 4861 §7.2.4).
			body := append([]byte{neighbourAnswers, 0, 0, 0, 0x40, 0, 0, 0}, f[62:78]...)
			return icmp6(s.mac, f[6:12], target, from, append(append(body, 2, 1), s.mac...))
		}
	}
	return nil
}

// asks says whether an address is one by which the guest visits.
func (s *Answerer) asks(a netip.Addr) bool {
	return slices.ContainsFunc(s.of, func(p netip.Prefix) bool { return p.Addr() == a })
}

// stands says whether it answers for an address.
func (s *Answerer) stands(a netip.Addr) bool {
	return !s.asks(a) && !slices.Contains(s.but, a) && slices.ContainsFunc(s.of, func(p netip.Prefix) bool { return p.Contains(a) })
}

// filterQuestions lets requests of ARP and neighbour solicitations through, of no VLAN.
func filterQuestions(fd int) error {
	is := func(value uint32, yes, no uint8) bpf.JumpIf {
		return bpf.JumpIf{Cond: bpf.JumpEqual, Val: value, SkipTrue: yes, SkipFalse: no}
	}
	return sockfilter.Attach(fd, []bpf.Instruction{
		bpf.LoadExtension{Num: bpf.ExtVLANTagPresent}, is(0, 0, 10),
		bpf.LoadAbsolute{Off: 12, Size: 2}, is(unix.ETH_P_ARP, 0, 2),
		bpf.LoadAbsolute{Off: 20, Size: 2}, is(arpAsk, 5, 6),
		is(unix.ETH_P_IPV6, 0, 5),
		bpf.LoadAbsolute{Off: 20, Size: 1}, is(unix.IPPROTO_ICMPV6, 0, 3),
		bpf.LoadAbsolute{Off: 54, Size: 1}, is(neighbourAsks, 0, 1),
		bpf.RetConstant{Val: 1 << 16},
		bpf.RetConstant{Val: 0},
	})
}
