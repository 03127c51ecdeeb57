package mptcp

import (
	"context"
	"errors"
	"fmt"
	"net/netip"

	"github.com/mdlayher/genetlink"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// EventKind is the kernel's mptcp_event_type.
type EventKind uint8

// Kinds of events. Lost is ours: the kernel could not queue some events, so
// whoever keeps count must list the connections again.
const (
	Created        EventKind = 1
	Established    EventKind = 2
	Closed         EventKind = 3
	Announced      EventKind = 6
	Removed        EventKind = 7
	SubEstablished EventKind = 10
	SubClosed      EventKind = 11
	SubPriority    EventKind = 13
	Lost           EventKind = 255
)

func (k EventKind) String() string {
	switch k {
	case Created:
		return "created"
	case Established:
		return "established"
	case Closed:
		return "closed"
	case Announced:
		return "announced"
	case Removed:
		return "removed"
	case SubEstablished:
		return "sub_established"
	case SubClosed:
		return "sub_closed"
	case SubPriority:
		return "sub_priority"
	case Lost:
		return "lost"
	}
	return fmt.Sprintf("event-%d", uint8(k))
}

// An Event is something that happened to a connection. Fields that its kind does
// not carry are zero (see enum mptcp_event_type in linux/mptcp.h).
type Event struct {
	Kind       EventKind
	Token      uint32 // of the local side
	Local      netip.AddrPort
	Remote     netip.AddrPort
	LocalID    uint8
	RemoteID   uint8
	Backup     bool
	ServerSide bool
	IfIndex    int
	Errno      uint8 // of a closed subflow
}

// eventBuffer holds the burst of thousands of connections that join at once.
const eventBuffer = 8 << 20

// Events streams the path manager's events of the current namespace until ctx
// ends, and then closes the channel. Reading slowly costs no memory beyond the
// socket's buffer: when that overflows, one Lost event says so. Needs CAP_NET_ADMIN.
func Events(ctx context.Context) (<-chan Event, error) {
	conn, family, err := open()
	if err != nil {
		return nil, fmt.Errorf("open mptcp events: %w", err)
	}
	if err := join(conn, family); err != nil {
		conn.Close()
		return nil, fmt.Errorf("open mptcp events: %w", err)
	}
	events := make(chan Event, 256)
	go func() {
		<-ctx.Done()
		conn.Close()
	}()
	go pump(ctx, conn, events)
	return events, nil
}

func join(conn *genetlink.Conn, family genetlink.Family) error {
	for _, group := range family.Groups {
		if group.Name == eventsGroup {
			// A smaller buffer is only more likely to lose events, and says so.
			_ = conn.SetReadBuffer(eventBuffer)
			return conn.JoinGroup(group.ID)
		}
	}
	return ErrUnsupported
}

func pump(ctx context.Context, conn *genetlink.Conn, events chan<- Event) {
	defer close(events)
	for {
		messages, _, err := conn.Receive()
		if err != nil {
			if ctx.Err() != nil || !errors.Is(err, unix.ENOBUFS) {
				return
			}
			messages = []genetlink.Message{{Header: genetlink.Header{Command: uint8(Lost)}}}
		}
		for _, message := range messages {
			select {
			case events <- decodeEvent(message):
			case <-ctx.Done():
				return
			}
		}
	}
}

func decodeEvent(message genetlink.Message) Event {
	event := Event{Kind: EventKind(message.Header.Command)}
	decoder, err := netlink.NewAttributeDecoder(message.Data)
	if err != nil {
		return event
	}
	var source, target netip.Addr
	var sourcePort, targetPort uint16
	for decoder.Next() {
		switch decoder.Type() {
		case evToken:
			event.Token = decoder.Uint32()
		case evLocID:
			event.LocalID = decoder.Uint8()
		case evRemID:
			event.RemoteID = decoder.Uint8()
		case evSaddr4, evSaddr6:
			source, _ = netip.AddrFromSlice(decoder.Bytes())
		case evDaddr4, evDaddr6:
			target, _ = netip.AddrFromSlice(decoder.Bytes())
		case evSport:
			sourcePort = be16(decoder.Bytes())
		case evDport:
			targetPort = be16(decoder.Bytes())
		case evBackup:
			event.Backup = decoder.Uint8() != 0
		case evError:
			event.Errno = decoder.Uint8()
		case evIfIdx:
			event.IfIndex = int(decoder.Int32())
		case evServerSide:
			event.ServerSide = decoder.Uint8() != 0
		}
	}
	if source.IsValid() {
		event.Local = netip.AddrPortFrom(source.Unmap(), sourcePort)
	}
	if target.IsValid() {
		event.Remote = netip.AddrPortFrom(target.Unmap(), targetPort)
	}
	return event
}
