package dhcp

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv4"
	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"

	"godwit/internal/sockfilter"
)

// A Server answers at one tap until Close.
type Server struct {
	grant Grant
	own   net.HardwareAddr // of the tap
	tap   *os.File         // a packet socket there
	heard func(Word)
	done  chan struct{}
}

// Serve begins to answer the grant's MAC at the tap device, in the network namespace of
// the calling thread. heard is told what the client says, in order; it may be nil. On
// error nothing is left.
func Serve(device string, g Grant, heard func(Word)) (*Server, error) {
	if err := g.check(); err != nil {
		return nil, fmt.Errorf("serve DHCP on %s: %w", device, err)
	}
	ifi, err := net.InterfaceByName(device)
	if err != nil {
		return nil, fmt.Errorf("serve DHCP on %s: %w", device, err)
	}
	fd, err := listen(ifi.Index, g.MAC)
	if err != nil {
		return nil, fmt.Errorf("serve DHCP on %s: %w", device, err)
	}
	if heard == nil {
		heard = func(Word) {}
	}
	s := &Server{grant: g, own: ifi.HardwareAddr, tap: os.NewFile(uintptr(fd), "dhcp "+device), heard: heard, done: make(chan struct{})}
	go s.serve()
	return s, nil
}

// Close ends it; what is being answered is finished.
func (s *Server) Close() error {
	err := s.tap.Close()
	<-s.done
	return err
}

// listen is a packet socket at a device that hears a client of DHCP of that MAC only. It must hear all
// protocols: a bridge takes the frames of its ports before those who ask for one.
func listen(index int, mac net.HardwareAddr) (int, error) {
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return 0, err
	}
	err = filter(fd, mac)
	if err == nil {
		const all = unix.ETH_P_ALL<<8 | unix.ETH_P_ALL>>8
		err = unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: all & 0xffff, Ifindex: index})
	}
	if err != nil {
		return 0, errors.Join(err, unix.Close(fd))
	}
	return fd, nil
}

const (
	headers    = 14 + 20 + 8 // Ethernet, IPv4 without options, UDP
	serverPort = 67
	clientPort = 68
)

// filter lets whole IPv4 UDP packets of that MAC to a server's port through, without IP options: what others say on its
// way to the guest, and how much of it, is no matter.
func filter(fd int, mac net.HardwareAddr) error {
	var program []bpf.Instruction
	for _, field := range []struct {
		at    uint32
		size  int
		value uint32
	}{
		{6, 4, binary.BigEndian.Uint32(mac)}, {10, 2, uint32(binary.BigEndian.Uint16(mac[4:]))}, {12, 2, unix.ETH_P_IP}, {14, 1, 0x45},
		{20, 2, 0}, {23, 1, unix.IPPROTO_UDP}, {36, 2, serverPort},
	} {
		program = append(program, bpf.LoadAbsolute{Off: field.at, Size: field.size})
		if field.at == 20 { // no more fragments, and no offset
			program = append(program, bpf.ALUOpConstant{Op: bpf.ALUOpAnd, Val: 0x3fff})
		}
		program = append(program, bpf.JumpIf{Cond: bpf.JumpEqual, Val: field.value, SkipTrue: 1}, bpf.RetConstant{Val: 0})
	}
	return sockfilter.Attach(fd, append(program, bpf.RetConstant{Val: 1 << 16}))
}

// between bounds how many messages of a guest are looked at: it may send them without end.
const between = 5 * time.Millisecond

func (s *Server) serve() {
	defer close(s.done)
	buf := make([]byte, 4096)
	for ; ; time.Sleep(between) {
		n, err := s.tap.Read(buf)
		if errors.Is(err, os.ErrClosed) {
			return
		}
		if err != nil { // the tap is gone, or down for a while: Close ends it
			if !errors.Is(err, unix.ENETDOWN) {
				return
			}
			continue
		}
		frame := buf[:n]
		if n < headers || !bytes.Equal(frame[6:12], s.grant.MAC) {
			continue // somebody else's, on its way to the guest
		}
		q, err := dhcpv4.FromBytes(bytes.Clone(frame[headers:]))
		if err != nil {
			continue
		}
		answer, word := s.grant.Answer(q)
		if answer != nil {
			_, _ = s.tap.Write(s.frame(answer)) // lost: the client asks again
		}
		if word != Nothing {
			s.heard(word)
		}
	}
}
