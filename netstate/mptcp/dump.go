package mptcp

import (
	"encoding/binary"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

const (
	dumpBuffer  = 64 << 10 // the kernel answers in parts of 32 KiB at most
	dumpSilence = 10 * time.Second
)

// dump lists sockets of one protocol in both families whose state is in the mask.
func dump(protocol uint32, states uint32) ([]socket, error) {
	return ask(func(family uint8) []byte { return diagRequest(family, protocol, states) })
}

// mostListed is how many sockets there were at most: as many are made room for at once, up
// to mostKept. A guest under emulation has better to do than to copy them again and again.
var mostListed atomic.Int64

const mostKept = 1 << 16

// ask lists the sockets of a request in both families.
func ask(request func(family uint8) []byte) ([]socket, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, netlinkSockDiag)
	if err != nil {
		return nil, fmt.Errorf("open sock_diag: %w", err)
	}
	defer unix.Close(fd)
	silence := unix.NsecToTimeval(int64(dumpSilence))
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &silence); err != nil {
		return nil, err
	}
	all := make([]socket, 0, mostListed.Load())
	defer func() { mostListed.Store(max(mostListed.Load(), min(int64(len(all)), mostKept))) }()
	buf := make([]byte, dumpBuffer)
	for _, family := range []uint8{unix.AF_INET, unix.AF_INET6} {
		before := len(all)
		for try := 1; ; try++ {
			if all, err = dumpFamily(fd, request(family), buf, all[:before]); !errors.Is(err, ErrInterrupted) || try == dumpTries {
				break
			}
		}
		if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.EPROTONOSUPPORT) || errors.Is(err, unix.EINVAL) {
			err = fmt.Errorf("%w: %w", ErrUnsupported, err)
		}
		if err != nil {
			return nil, err
		}
	}
	return all, nil
}

// dumpFamily asks once, and appends the answers to all.
func dumpFamily(fd int, request, buf []byte, all []socket) ([]socket, error) {
	message := make([]byte, unix.NLMSG_HDRLEN, unix.NLMSG_HDRLEN+len(request))
	binary.NativeEndian.PutUint32(message, uint32(unix.NLMSG_HDRLEN+len(request))) //nolint:gosec // some 70
	binary.NativeEndian.PutUint16(message[4:], sockDiagByFamily)
	binary.NativeEndian.PutUint16(message[6:], unix.NLM_F_REQUEST|unix.NLM_F_DUMP)
	if err := unix.Sendto(fd, append(message, request...), 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return all, err
	}
	interrupted := false
	for {
		n, _, flags, _, err := unix.Recvmsg(fd, buf, nil, 0)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err == nil && flags&unix.MSG_TRUNC != 0 {
			err = fmt.Errorf("sock_diag answer of more than %d bytes", len(buf))
		}
		if err != nil {
			return all, err
		}
		var done, cut bool
		if all, done, cut, err = takePart(buf[:n], all); err != nil {
			return all, err
		}
		if interrupted = interrupted || cut; done {
			break
		}
	}
	if interrupted {
		return all, ErrInterrupted
	}
	return all, nil
}

// takePart appends the sockets of one part of an answer. done: it was the last; cut: the
// kernel says that the listing is not whole.
func takePart(b []byte, all []socket) (_ []socket, done, cut bool, err error) {
	for len(b) >= unix.NLMSG_HDRLEN {
		n := int(binary.NativeEndian.Uint32(b))
		if n < unix.NLMSG_HDRLEN || n > len(b) {
			return all, false, cut, fmt.Errorf("sock_diag answer: a message of %d bytes in %d", n, len(b))
		}
		body := b[unix.NLMSG_HDRLEN:n]
		cut = cut || binary.NativeEndian.Uint16(b[6:])&unix.NLM_F_DUMP_INTR != 0
		switch binary.NativeEndian.Uint16(b[4:]) {
		case unix.NLMSG_DONE:
			return all, true, cut, failed(body)
		case unix.NLMSG_ERROR:
			return all, true, cut, failed(body)
		case sockDiagByFamily:
			one, err := decodeSocket(body)
			if err != nil {
				return all, false, cut, err
			}
			all = append(all, one)
		}
		b = b[min((n+3)&^3, len(b)):]
	}
	return all, false, cut, nil
}

// failed is the error that an answer ends with, if it does.
func failed(body []byte) error {
	if code := int32(u32(body)); code < 0 { //nolint:gosec // it has a sign there
		return unix.Errno(-code)
	}
	return nil
}
