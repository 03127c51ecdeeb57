package mptcp

import (
	"encoding/binary"
	"testing"

	"golang.org/x/sys/unix"
)

// FuzzDecodeSocket: the kernel is trusted, but not with our stack: no answer may panic.
func FuzzDecodeSocket(f *testing.F) {
	f.Add(make([]byte, diagMessageLen))
	f.Add(append(make([]byte, diagMessageLen), 8, 0, 19, 0, 1, 2, 3, 4))
	f.Fuzz(func(t *testing.T, b []byte) {
		s, err := decodeSocket(b)
		if err == nil {
			group([]socket{s}, []socket{s})
			tcpFigures(b)
		}
	})
}

// FuzzMessages: no part of a list, nor an event, however it is cut, may panic; what is taken of a part is no more than
// it has room for.
func FuzzMessages(f *testing.F) {
	message := func(kind uint16, body []byte) []byte {
		b := binary.NativeEndian.AppendUint32(nil, uint32(unix.NLMSG_HDRLEN+len(body))) //nolint:gosec // short
		b = binary.NativeEndian.AppendUint16(b, kind)
		return append(append(b, make([]byte, 10)...), body...)
	}
	f.Add(append(message(sockDiagByFamily, make([]byte, diagMessageLen)), message(unix.NLMSG_DONE, make([]byte, 4))...))
	f.Add(message(unix.NLMSG_ERROR, []byte{0xfe, 0xff, 0xff, 0xff}))
	f.Add(message(30, []byte{byte(SubEstablished), 1, 0, 0, 8, 0, evToken, 0, 1, 2, 3, 4, 8, 0, evSaddr4, 0, 10, 1, 1, 5, 6, 0, evSport, 0, 0, 80, 0, 0}))
	f.Fuzz(func(t *testing.T, b []byte) {
		all, _, _, err := takePart(b, nil)
		if err == nil && len(all) > len(b)/(unix.NLMSG_HDRLEN+diagMessageLen) {
			t.Errorf("%d sockets in %d bytes", len(all), len(b))
		}
		readEvent(b) //nolint:errcheck // it is not to panic
	})
}
