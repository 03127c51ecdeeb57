package mptcp

import (
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"syscall"

	"github.com/mdlayher/genetlink"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// Prepared is an endpoint of which nobody knows yet, and all that it takes to add it but one
// request: a guest that has just arrived somewhere is slow at everything that it does for the
// first time. Close it.
type Prepared struct {
	endpoint Endpoint
	fd       int
	request  []byte
	close    sync.Once
}

// preparedWait bounds the wait for the kernel's answer, s. It answers while it is asked.
const preparedWait = 5

// Prepare makes ready to add e, in the caller's network namespace.
func Prepare(e Endpoint) (*Prepared, error) {
	failed := func(err error) (*Prepared, error) {
		return nil, fmt.Errorf("prepare mptcp endpoint %d %s: %w", e.ID, e.Addr, err)
	}
	conn, family, err := open()
	if err != nil {
		return failed(err)
	}
	conn.Close()
	encoder, err := encodeEndpoint(e, true)
	if err != nil {
		return failed(err)
	}
	attributes, err := encoder.Encode()
	if err != nil {
		return failed(err)
	}
	body, err := genetlink.Message{Header: genetlink.Header{Command: cmdAddAddr, Version: version}, Data: attributes}.MarshalBinary()
	if err != nil {
		return failed(err)
	}
	header := netlink.Header{Length: uint32(unix.NLMSG_HDRLEN + len(body)), Type: netlink.HeaderType(family.ID), //nolint:gosec // some 60 bytes
		Flags: netlink.Request | netlink.Acknowledge, Sequence: 1}
	request, err := netlink.Message{Header: header, Data: body}.MarshalBinary()
	if err != nil {
		return failed(err)
	}
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_GENERIC)
	if err != nil {
		return failed(err)
	}
	p := &Prepared{endpoint: e, fd: fd, request: request}
	if err := errors.Join(unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}),
		unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: preparedWait})); err != nil {
		p.Close()
		return failed(err)
	}
	return p, nil
}

// Endpoint is the one that was prepared.
func (p *Prepared) Endpoint() Endpoint { return p.endpoint }

// Add adds the endpoint, as AddEndpoint does. It is for once.
func (p *Prepared) Add() error {
	err := p.ask()
	if err != nil {
		err = fmt.Errorf("add mptcp endpoint %d %s: %w", p.endpoint.ID, p.endpoint.Addr, refusal(err))
	}
	return err
}

// ask sends the request, and reads the kernel's answer: struct nlmsgerr behind a struct nlmsghdr.
func (p *Prepared) ask() error {
	if err := unix.Sendto(p.fd, p.request, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return err
	}
	answer := make([]byte, 512)
	for {
		n, err := unix.Read(p.fd, answer)
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return err
		case n < unix.NLMSG_HDRLEN+4 || binary.NativeEndian.Uint16(answer[4:]) != unix.NLMSG_ERROR:
			return errors.New("the kernel's answer is none")
		default:
			if code := -int32(binary.NativeEndian.Uint32(answer[unix.NLMSG_HDRLEN:])); code != 0 { //nolint:gosec // a negative number
				return syscall.Errno(code) //nolint:gosec // which is positive now
			}
			return nil
		}
	}
}

// Close ends what was prepared; an endpoint that was added stays.
func (p *Prepared) Close() {
	p.close.Do(func() { unix.Close(p.fd) })
}
