package paths

import (
	"context"
	"net"
	"strings"
	"testing"

	"godwit/transfer/wire"
)

// TestBadWelcome: whoever opens a lane speaks no version that it did not offer, and hears nothing before a welcome but a
// farewell.
func TestBadWelcome(t *testing.T) {
	for want, answer := range map[string][]byte{
		"welcome to version 0, which was not offered": wire.AppendWelcome(nil, wire.Oldest-1),
		"welcome to version 7, which was not offered": wire.AppendWelcome(nil, wire.Version+1),
		"message of kind 5 instead of a welcome":      wire.AppendAck(nil, wire.Ack{}),
		"message of kind 4 instead of a welcome":      wire.AppendControl(nil, 1, wire.TopicReturn, nil),
		"unknown kind 72":                             []byte("HTTP/1.1 400 Bad Request"),
		"closed before a welcome":                     nil,
		"the other end: no":                           wire.AppendBye(nil, "no"),
	} {
		inBubble(t, func(t *testing.T) {
			s := NewSender(t.Context(), SenderConfig{Identity: identity})
			defer s.Close() //nolint:errcheck // the lane tells
			err := s.openOnce(Lane{Path: "a", Open: func(context.Context) (net.Conn, error) {
				here, there := net.Pipe()
				go func() {
					defer there.Close()
					wire.Read(there, nil) //nolint:errcheck // the hello
					there.Write(answer)   //nolint:errcheck // it may be hung up on
				}()
				return here, nil
			}})
			if err == nil || !strings.Contains(err.Error(), want) || s.Version() != 0 {
				t.Errorf("%v, want %q; it speaks version %d", err, want, s.Version())
			}
		})
	}
}
