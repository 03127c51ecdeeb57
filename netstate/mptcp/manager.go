package mptcp

import (
	"errors"
	"fmt"
	"os"
	"sync/atomic"

	"github.com/mdlayher/genetlink"
	"github.com/mdlayher/netlink"
)

// Limits bound what the path manager does on its own for one connection.
// A socket takes its copy when it is created: a change helps no open connection.
type Limits struct {
	Subflows        uint32 // additional subflows, at most 8
	AddAddrAccepted uint32 // announced addresses accepted from the peer, at most 8
}

// SetLimits replaces the limits of this namespace.
func SetLimits(subflows, addAddrAccepted uint32) error {
	encoder := netlink.NewAttributeEncoder()
	encoder.Uint32(attrRcvAddAddrs, addAddrAccepted)
	encoder.Uint32(attrSubflows, subflows)
	if _, err := request(cmdSetLimits, encoder, 0); err != nil {
		return fmt.Errorf("set mptcp limits: %w", err)
	}
	return nil
}

// ReadLimits returns the limits of this namespace.
func ReadLimits() (Limits, error) {
	messages, err := request(cmdGetLimits, nil, 0)
	if err != nil {
		return Limits{}, fmt.Errorf("get mptcp limits: %w", err)
	}
	var limits Limits
	for _, message := range messages {
		decoder, err := netlink.NewAttributeDecoder(message.Data)
		if err != nil {
			return Limits{}, fmt.Errorf("get mptcp limits: %w", err)
		}
		for decoder.Next() {
			switch decoder.Type() {
			case attrRcvAddAddrs:
				limits.AddAddrAccepted = decoder.Uint32()
			case attrSubflows:
				limits.Subflows = decoder.Uint32()
			}
		}
		if err := decoder.Err(); err != nil {
			return Limits{}, fmt.Errorf("get mptcp limits: %w", err)
		}
	}
	return limits, nil
}

// messageBuffer holds each message of a list, which the kernel makes no longer than what it was read with last, or 8 KiB
// (netlink_dump of net/netlink/af_netlink.c, NLMSG_GOODSIZE), and each event.
const messageBuffer = 8 << 10

// open dials the path manager of the current namespace.
func open() (*genetlink.Conn, genetlink.Family, error) {
	// With a buffer each message takes one system call, not two: events come by the thousand.
	conn, err := genetlink.Dial(&netlink.Config{MessageBufferSize: messageBuffer})
	if err != nil {
		return nil, genetlink.Family{}, err
	}
	if known := pathManager.Load(); known != nil {
		return conn, *known, nil
	}
	found, err := conn.GetFamily(familyName)
	if err != nil {
		conn.Close()
		if errors.Is(err, os.ErrNotExist) {
			err = ErrUnsupported
		}
		return nil, genetlink.Family{}, err
	}
	pathManager.Store(&found)
	return conn, found, nil
}

// pathManager is the path manager's number, once it is known: the kernel gives it when it starts, to
// all namespaces. In an emulated guest asking again takes as long as what is asked for.
var pathManager atomic.Pointer[genetlink.Family]

// request sends one command and returns the answers. A dump that the kernel
// marks as interrupted is read again, a few times.
func request(command uint8, attributes *netlink.AttributeEncoder, flags netlink.HeaderFlags) ([]genetlink.Message, error) {
	conn, family, err := open()
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	message := genetlink.Message{Header: genetlink.Header{Command: command, Version: version}}
	if attributes != nil {
		if message.Data, err = attributes.Encode(); err != nil {
			return nil, err
		}
	}
	flags |= netlink.Request
	if flags&netlink.Dump == 0 && command != cmdGetLimits {
		flags |= netlink.Acknowledge
	}
	for range dumpTries {
		answers, err := execute(conn, message, family.ID, flags)
		if !errors.Is(err, ErrInterrupted) {
			return answers, err
		}
	}
	return nil, ErrInterrupted
}

// dumpTries bounds how often an interrupted listing is begun again.
const dumpTries = 8

func execute(conn *genetlink.Conn, message genetlink.Message, family uint16, flags netlink.HeaderFlags) ([]genetlink.Message, error) {
	if _, err := conn.Send(message, family, flags); err != nil {
		return nil, err
	}
	answers, raw, err := conn.Receive()
	if err != nil {
		return nil, err
	}
	for _, header := range raw {
		if header.Header.Flags&netlink.DumpInterrupted != 0 {
			return nil, ErrInterrupted
		}
	}
	return answers, nil
}
