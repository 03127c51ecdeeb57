package mptcp

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"
)

// State is a TCP state, by the kernel's numbers (net/tcp_states.h).
type State uint8

// TCP states.
const (
	StateEstablished State = 1 + iota
	StateSynSent
	StateSynRecv
	StateFinWait1
	StateFinWait2
	StateTimeWait
	StateClose
	StateCloseWait
	StateLastAck
	StateListen
	StateClosing
	StateNewSynRecv
)

var stateNames = [...]string{"", "established", "syn-sent", "syn-recv", "fin-wait-1", "fin-wait-2", "time-wait",
	"close", "close-wait", "last-ack", "listen", "closing", "new-syn-recv"}

func (s State) String() string {
	if int(s) < len(stateNames) {
		return stateNames[s]
	}
	return fmt.Sprintf("state-%d", uint8(s))
}

// Figures are one socket's numbers from the kernel's tcp_info.
type Figures struct {
	RTT           time.Duration // smoothed
	LeastRTT      time.Duration // of the last minutes: the way without queues
	Retransmits   uint32        // segments sent again since the beginning
	Unanswered    uint8         // retransmissions of the oldest segment without an answer
	Silent        time.Duration // since an acknowledgement came last
	Exists        time.Duration // at least: since data went or came last, of which both begin with the socket
	BytesAcked    uint64
	BytesReceived uint64
}

// socket is one answer of sock_diag.
type socket struct {
	state         State
	local, remote netip.AddrPort
	device        [4]byte // that it is bound to, by number; 0: none
	inode         uint32
	cookie        [8]byte
	mptcp         bool
	sub           subflowInfo
	figures       Figures  // where it is TCP
	info          [32]byte // the beginning of INET_DIAG_INFO
	infoLen       int
	receive       int64 // bytes that its receive buffer may hold, where that was asked for
	unacked       int64 // TCP: bytes written by its program that the other end has not acknowledged, and its FIN, which is one
}

type subflowInfo struct {
	token uint32 // local
	flags uint32
}

const (
	diagRequestLen = 56 // struct inet_diag_req_v2
	diagMessageLen = 72 // struct inet_diag_msg
)

// diagRequest builds struct inet_diag_req_v2. Protocols past 255 go into an
// attribute (INET_DIAG_REQ_PROTOCOL).
func diagRequest(family uint8, protocol, states uint32) []byte {
	request := make([]byte, diagRequestLen)
	request[0] = family
	request[1] = unix.IPPROTO_TCP
	request[2] = 1 << (diagInfo - 1)
	binary.NativeEndian.PutUint32(request[4:], states)
	if protocol <= 255 {
		request[1] = uint8(protocol)
		return request
	}
	attribute := make([]byte, 8)
	binary.NativeEndian.PutUint16(attribute, 8)
	binary.NativeEndian.PutUint16(attribute[2:], diagReqProtocol)
	binary.NativeEndian.PutUint32(attribute[4:], protocol)
	return append(request, attribute...)
}

func decodeSocket(b []byte) (socket, error) {
	if len(b) < diagMessageLen {
		return socket{}, fmt.Errorf("sock_diag answer of %d bytes: too short", len(b))
	}
	s := socket{
		state:  State(b[1]),
		local:  diagAddr(b[0], b[8:24], b[4:6]),
		remote: diagAddr(b[0], b[24:40], b[6:8]),
		device: [4]byte(b[40:44]),
		cookie: [8]byte(b[44:52]),
		inode:  binary.NativeEndian.Uint32(b[68:]),

		unacked: int64(binary.NativeEndian.Uint32(b[60:])),
	}
	err := eachAttribute(b[diagMessageLen:], func(kind uint16, value []byte) error {
		switch kind {
		case diagInfo:
			s.figures = tcpFigures(value)
			s.infoLen = copy(s.info[:], value)
		case diagMemory:
			if len(value) >= 8 {
				s.receive = int64(binary.NativeEndian.Uint32(value[4:])) // SK_MEMINFO_RCVBUF
			}
		case diagUlpInfo:
			return decodeULP(value, &s)
		}
		return nil
	})
	return s, err
}

func decodeULP(b []byte, s *socket) error {
	return eachAttribute(b, func(kind uint16, value []byte) error {
		switch kind {
		case ulpName:
			s.mptcp = s.mptcp || string(bytes.TrimRight(value, "\x00")) == "mptcp"
		case ulpMPTCP:
			return eachAttribute(value, func(kind uint16, value []byte) error {
				s.sub.take(kind, value)
				return nil
			})
		}
		return nil
	})
}

func (sub *subflowInfo) take(kind uint16, value []byte) {
	switch kind {
	case subTokenLoc:
		sub.token = u32(value)
	case subFlags:
		sub.flags = u32(value)
	}
}

func u32(b []byte) uint32 {
	if len(b) < 4 {
		return 0
	}
	return binary.NativeEndian.Uint32(b)
}

// eachAttribute calls take for each netlink attribute in b, which it does not keep: listing
// thousands of sockets would be memory above all.
func eachAttribute(b []byte, take func(kind uint16, value []byte) error) error {
	const header, flags = 4, unix.NLA_F_NESTED | unix.NLA_F_NET_BYTEORDER
	for len(b) >= header {
		n := int(binary.NativeEndian.Uint16(b))
		if n < header || n > len(b) {
			return fmt.Errorf("sock_diag answer: an attribute of %d bytes in %d", n, len(b))
		}
		if err := take(binary.NativeEndian.Uint16(b[2:])&^uint16(flags), b[header:n]); err != nil {
			return err
		}
		b = b[min((n+3)&^3, len(b)):]
	}
	return nil
}

func diagAddr(family uint8, addr, port []byte) netip.AddrPort {
	var ip netip.Addr
	if family == unix.AF_INET {
		ip = netip.AddrFrom4([4]byte(addr[:4]))
	} else {
		ip = netip.AddrFrom16([16]byte(addr)).Unmap()
	}
	return netip.AddrPortFrom(ip, binary.BigEndian.Uint16(port))
}

// tcpFigures reads struct tcp_info; older kernels send a shorter one.
func tcpFigures(info []byte) Figures {
	u32 := func(at int) uint32 {
		if len(info) < at+4 {
			return 0
		}
		return binary.NativeEndian.Uint32(info[at:])
	}
	u64 := func(at int) uint64 {
		if len(info) < at+8 {
			return 0
		}
		return binary.NativeEndian.Uint64(info[at:])
	}
	f := Figures{
		RTT:           time.Duration(u32(68)) * time.Microsecond,
		Silent:        time.Duration(u32(56)) * time.Millisecond,
		Exists:        time.Duration(max(u32(44), u32(52))) * time.Millisecond,
		Retransmits:   u32(100),
		BytesAcked:    u64(120),
		BytesReceived: u64(128),
	}
	if least := u32(148); least != ^uint32(0) { // that means none
		f.LeastRTT = time.Duration(least) * time.Microsecond
	}
	if len(info) > 2 {
		f.Unanswered = info[2]
	}
	return f
}
