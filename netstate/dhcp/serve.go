package dhcp

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"os"

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
	fd, err := listen(ifi.Index)
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

// listen is a packet socket at a device that hears clients of DHCP only. It must hear all
// protocols: a bridge takes the frames of its ports before those who ask for one.
func listen(index int) (int, error) {
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return 0, err
	}
	err = filter(fd)
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

// filter lets whole IPv4 UDP packets to a server's port through, without IP options.
func filter(fd int) error {
	program := []bpf.Instruction{
		bpf.LoadAbsolute{Off: 12, Size: 2},
		bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: unix.ETH_P_IP, SkipTrue: 9},
		bpf.LoadAbsolute{Off: 14, Size: 1},
		bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: 0x45, SkipTrue: 7},
		bpf.LoadAbsolute{Off: 20, Size: 2},
		bpf.JumpIf{Cond: bpf.JumpBitsSet, Val: 0x3fff, SkipTrue: 5},
		bpf.LoadAbsolute{Off: 23, Size: 1},
		bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: unix.IPPROTO_UDP, SkipTrue: 3},
		bpf.LoadAbsolute{Off: 36, Size: 2},
		bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: serverPort, SkipTrue: 1},
		bpf.RetConstant{Val: 1 << 16},
		bpf.RetConstant{Val: 0},
	}
	return sockfilter.Attach(fd, program)
}

func (s *Server) serve() {
	defer close(s.done)
	buf := make([]byte, 4096)
	for {
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
