package mptcp

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/mdlayher/netlink"
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
	Retransmits   uint32        // segments sent again since the beginning
	Unanswered    uint8         // retransmissions of the oldest segment without an answer
	BytesAcked    uint64
	BytesReceived uint64
}

// socket is one answer of sock_diag.
type socket struct {
	state         State
	local, remote netip.AddrPort
	inode         uint32
	cookie        [8]byte
	mptcp         bool
	sub           subflowInfo
	info          []byte // raw INET_DIAG_INFO
}

type subflowInfo struct {
	token, remoteToken uint32
	flags              uint32
	idLocal, idRemote  uint8
}

const (
	diagRequestLen = 56 // struct inet_diag_req_v2
	diagMessageLen = 72 // struct inet_diag_msg
)

// dump lists sockets of one protocol in both families whose state is in the mask.
func dump(protocol uint32, states uint32) ([]socket, error) {
	conn, err := netlink.Dial(netlinkSockDiag, nil)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	// A listing of thousands of sockets arrives faster than it is read.
	_ = conn.SetReadBuffer(1 << 20)
	var all []socket
	for _, family := range []uint8{unix.AF_INET, unix.AF_INET6} {
		sockets, err := dumpFamily(conn, family, protocol, states)
		if err != nil {
			if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.EPROTONOSUPPORT) || errors.Is(err, unix.EINVAL) {
				err = fmt.Errorf("%w: %w", ErrUnsupported, err)
			}
			return nil, err
		}
		all = append(all, sockets...)
	}
	return all, nil
}

func dumpFamily(conn *netlink.Conn, family uint8, protocol, states uint32) ([]socket, error) {
	message := netlink.Message{
		Header: netlink.Header{Type: sockDiagByFamily, Flags: netlink.Request | netlink.Dump},
		Data:   diagRequest(family, protocol, states),
	}
	for range dumpTries {
		if _, err := conn.Send(message); err != nil {
			return nil, err
		}
		sockets, err := receiveSockets(conn)
		if !errors.Is(err, ErrInterrupted) {
			return sockets, err
		}
	}
	return nil, ErrInterrupted
}

func receiveSockets(conn *netlink.Conn) ([]socket, error) {
	var sockets []socket
	interrupted := false
	for answer, err := range conn.ReceiveIter() {
		if err != nil {
			return nil, err
		}
		if answer.Header.Flags&netlink.DumpInterrupted != 0 {
			interrupted = true
		}
		if answer.Header.Type != sockDiagByFamily {
			continue
		}
		one, err := decodeSocket(answer.Data)
		if err != nil {
			return nil, err
		}
		sockets = append(sockets, one)
	}
	if interrupted {
		return nil, ErrInterrupted
	}
	return sockets, nil
}

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
		cookie: [8]byte(b[44:52]),
		inode:  binary.NativeEndian.Uint32(b[68:]),
	}
	decoder, err := netlink.NewAttributeDecoder(b[diagMessageLen:])
	if err != nil {
		return socket{}, fmt.Errorf("sock_diag answer: %w", err)
	}
	for decoder.Next() {
		switch decoder.Type() {
		case diagInfo:
			s.info = decoder.Bytes()
		case diagUlpInfo:
			decoder.Nested(func(ulp *netlink.AttributeDecoder) error {
				decodeULP(ulp, &s)
				return nil
			})
		}
	}
	return s, decoder.Err()
}

func decodeULP(decoder *netlink.AttributeDecoder, s *socket) {
	for decoder.Next() {
		switch decoder.Type() {
		case ulpName:
			s.mptcp = s.mptcp || decoder.String() == "mptcp"
		case ulpMPTCP:
			decoder.Nested(func(sub *netlink.AttributeDecoder) error {
				decodeSubflow(sub, &s.sub)
				return nil
			})
		}
	}
}

func decodeSubflow(decoder *netlink.AttributeDecoder, sub *subflowInfo) {
	for decoder.Next() {
		switch decoder.Type() {
		case subTokenRem:
			sub.remoteToken = decoder.Uint32()
		case subTokenLoc:
			sub.token = decoder.Uint32()
		case subFlags:
			sub.flags = decoder.Uint32()
		case subIDRem:
			sub.idRemote = decoder.Uint8()
		case subIDLoc:
			sub.idLocal = decoder.Uint8()
		}
	}
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
		Retransmits:   u32(100),
		BytesAcked:    u64(120),
		BytesReceived: u64(128),
	}
	if len(info) > 2 {
		f.Unanswered = info[2]
	}
	return f
}
