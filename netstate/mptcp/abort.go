package mptcp

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

const sockDestroy = 21 // SOCK_DESTROY of linux/sock_diag.h

// Abort resets subflows that were listed, from this side. Their connections live on
// with the other subflows, which send again what was under way. A subflow that is
// gone already is no error; a kernel built without INET_DIAG_DESTROY answers with
// ErrUnsupported. At an error those after it are as they were.
func Abort(subflows ...Subflow) error {
	if len(subflows) == 0 {
		return nil
	}
	conn, err := netlink.Dial(netlinkSockDiag, nil)
	if err != nil {
		return fmt.Errorf("abort %d subflows: %w", len(subflows), err)
	}
	defer conn.Close()
	for _, s := range subflows {
		_, err = conn.Execute(netlink.Message{
			Header: netlink.Header{Type: sockDestroy, Flags: netlink.Request | netlink.Acknowledge},
			Data:   abortRequest(s),
		})
		switch {
		case err == nil || errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ESTALE):
			continue
		case errors.Is(err, unix.EOPNOTSUPP):
			err = ErrUnsupported
		}
		return fmt.Errorf("abort %s-%s: %w", s.Local, s.Remote, err)
	}
	return nil
}

// abortRequest names the very socket by its cookie: by its addresses alone the
// kernel would also find the listener. One that is bound to a device it finds by that alone.
func abortRequest(s Subflow) []byte {
	local, remote := s.Local, s.Remote
	family := uint8(unix.AF_INET)
	if local.Addr().Is6() {
		family = unix.AF_INET6
	}
	request := diagRequest(family, unix.IPPROTO_TCP, allStates)
	binary.BigEndian.PutUint16(request[8:], local.Port())
	binary.BigEndian.PutUint16(request[10:], remote.Port())
	copy(request[12:28], local.Addr().AsSlice())
	copy(request[28:44], remote.Addr().AsSlice())
	copy(request[44:48], s.device[:])
	copy(request[48:56], s.cookie[:])
	return request
}
