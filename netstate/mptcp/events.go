package mptcp

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"syscall"
	"time"

	"github.com/mdlayher/genetlink"
	"github.com/mdlayher/netlink"
	"golang.org/x/net/bpf"
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
	Removed        EventKind = 7 // the peer has withdrawn an address of its own (REMOVE_ADDR)
	SubEstablished EventKind = 10
	SubClosed      EventKind = 11
	Lost           EventKind = 255
)

// An Event is something that happened to a connection (enum mptcp_event_type in
// linux/mptcp.h, of which these attributes matter here).
type Event struct {
	Kind  EventKind
	Token uint32         // of the local side
	Local netip.AddrPort // zero where the kind has none
}

// eventBuffer holds the burst of thousands of connections that join at once.
const eventBuffer = 8 << 20

// What comes for a crowd is read by bunches: waking up who reads costs an emulated guest several times as much as an
// event. Events that come soon after each other, crowdOf times in a row, are a crowd's.
const (
	crowdOf = 32
	soon    = 5 * time.Millisecond
	bunch   = 10 * time.Millisecond
)

// Events streams the path manager's events of these kinds (none: all) in the current namespace until ctx ends, or they
// cannot be read, and then closes the channel; it wakes for no other. Reading slowly costs no memory beyond the
// socket's buffer: when that overflows, one Lost event says so. Needs CAP_NET_ADMIN.
func Events(ctx context.Context, kinds ...EventKind) (<-chan Event, error) {
	conn, family, err := open()
	if err != nil {
		return nil, fmt.Errorf("open mptcp events: %w", err)
	}
	raw, err := conn.SyscallConn()
	if err == nil {
		err = takeOnly(conn, kinds)
	}
	if err == nil {
		err = join(conn, family)
	}
	if err != nil {
		conn.Close()
		return nil, fmt.Errorf("open mptcp events: %w", err)
	}
	p := &pump{raw: raw, events: make(chan Event, 256), buffer: make([]byte, messageBuffer)}
	ctx, ended := context.WithCancel(ctx)
	context.AfterFunc(ctx, func() { conn.Close() })
	go func() {
		defer ended() // also where reading fails: who asks again would have one more socket each time
		p.run(ctx)
	}()
	return p.events, nil
}

// takeOnly has the kernel drop events of other kinds: a program that looks at struct genlmsghdr's cmd, which
// comes after struct nlmsghdr.
func takeOnly(conn *genetlink.Conn, kinds []EventKind) error {
	if len(kinds) == 0 {
		return nil
	}
	program := []bpf.Instruction{bpf.LoadAbsolute{Off: unix.NLMSG_HDRLEN, Size: 1}}
	for i, kind := range kinds { // to the end, over the others and what drops
		program = append(program, bpf.JumpIf{Cond: bpf.JumpEqual, Val: uint32(kind), SkipTrue: uint8(len(kinds) - i)}) //nolint:gosec // a few
	}
	filter, err := bpf.Assemble(append(program, bpf.RetConstant{Val: 0}, bpf.RetConstant{Val: messageBuffer}))
	if err != nil {
		return err
	}
	return conn.SetBPF(filter)
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

// A pump hands on what comes at its socket.
type pump struct {
	raw    syscall.RawConn
	events chan Event
	buffer []byte
}

func (p *pump) run(ctx context.Context) {
	defer close(p.events)
	inRow := 0
	for ctx.Err() == nil {
		came, begun := 0, time.Now()
		var failed error
		err := p.raw.Read(func(fd uintptr) bool {
			came, failed = p.drain(ctx, int(fd)) //nolint:gosec // a descriptor
			return came > 0 || failed != nil
		})
		if err != nil || failed != nil {
			return
		}
		if inRow++; came == 1 && time.Since(begun) > soon {
			inRow = 0
		}
		if inRow > crowdOf {
			time.Sleep(bunch)
		}
	}
}

// drain hands on all that has come until now.
func (p *pump) drain(ctx context.Context, fd int) (came int, err error) {
	for {
		n, err := unix.Read(fd, p.buffer)
		var event Event
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case errors.Is(err, unix.EAGAIN):
			return came, nil
		case errors.Is(err, unix.ENOBUFS):
			event.Kind = Lost
		case err != nil:
			return came, err
		default:
			if event, err = readEvent(p.buffer[:n]); err != nil {
				return came, err
			}
		}
		came++
		select {
		case p.events <- event:
		case <-ctx.Done():
			return came, ctx.Err()
		}
	}
}

// readEvent takes one message apart.
func readEvent(b []byte) (Event, error) {
	var outer netlink.Message
	var inner genetlink.Message
	if err := outer.UnmarshalBinary(b); err != nil {
		return Event{}, err
	}
	if err := inner.UnmarshalBinary(outer.Data); err != nil {
		return Event{}, err
	}
	return decodeEvent(inner), nil
}

func decodeEvent(message genetlink.Message) Event {
	event := Event{Kind: EventKind(message.Header.Command)}
	decoder, err := netlink.NewAttributeDecoder(message.Data)
	if err != nil {
		return event
	}
	var source netip.Addr
	var port uint16
	for decoder.Next() {
		switch decoder.Type() {
		case evToken:
			event.Token = decoder.Uint32()
		case evSaddr4, evSaddr6:
			source, _ = netip.AddrFromSlice(decoder.Bytes())
		case evSport:
			port = be16(decoder.Bytes())
		}
	}
	if source.IsValid() {
		event.Local = netip.AddrPortFrom(source.Unmap(), port)
	}
	return event
}
