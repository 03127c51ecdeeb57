package mptcp

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// Flags say what an endpoint is for.
type Flags uint32

// The kernel's MPTCP_PM_ADDR_FLAG_*.
const (
	FlagSignal   Flags = 1 << iota // announce the address to peers
	FlagSubflow                    // open subflows from the address
	FlagBackup                     // ask peers to use it only when nothing else works
	FlagFullmesh                   // open subflows to every announced address
	FlagImplicit                   // made by the kernel itself
)

func (f Flags) String() string {
	var names []string
	for i, name := range []string{"signal", "subflow", "backup", "fullmesh", "implicit"} {
		if f&(1<<i) != 0 {
			names = append(names, name)
		}
	}
	return strings.Join(names, ",")
}

// An Endpoint is a local address known to the path manager.
type Endpoint struct {
	ID    uint8 // 0 when adding lets the kernel choose
	Addr  netip.Addr
	Dev   string // interface that subflows leave by; may be empty
	Port  uint16 // with FlagSignal: the kernel listens there itself; 0 is the connection's own port
	Flags Flags
}

// AddEndpoint makes the path manager know e. Open connections announce it at once.
// If an endpoint with that address and port, or that id, exists, the error
// matches os.ErrExist and nothing is changed; where MaxEndpoints are known, ErrFull.
func AddEndpoint(e Endpoint) error {
	encoder, err := encodeEndpoint(e, true)
	if err != nil {
		return fmt.Errorf("add mptcp endpoint %d %s: %w", e.ID, e.Addr, err)
	}
	if _, err := request(cmdAddAddr, encoder, 0); err != nil {
		return fmt.Errorf("add mptcp endpoint %d %s: %w", e.ID, e.Addr, refusal(err))
	}
	return nil
}

// refusal is what the kernel means where it does not add an endpoint.
func refusal(err error) error {
	switch {
	case errors.Is(err, unix.EEXIST):
		return os.ErrExist
	case full(err):
		return ErrFull
	}
	return err
}

// MaxEndpoints is how many a namespace can have (MPTCP_PM_ADDR_MAX).
const MaxEndpoints = 8

// full says whether an endpoint was refused for want of room: kernels have said so
// with the number of any wrong argument.
func full(err error) bool {
	if !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ERANGE) {
		return false
	}
	known, err := Endpoints()
	return err == nil && len(known) >= MaxEndpoints
}

// DelEndpoint forgets the endpoint id: open connections withdraw its address and
// close their subflows on it. With id 0 it does so for the first subflow of every
// connection that began on addr. A missing endpoint is no error.
func DelEndpoint(id uint8, addr netip.Addr) error {
	if id == 0 && !addr.IsValid() {
		return errors.New("delete mptcp endpoint 0: needs the address")
	}
	encoder, err := encodeEndpoint(Endpoint{ID: id, Addr: addr}, false)
	if err != nil {
		return fmt.Errorf("delete mptcp endpoint %d %s: %w", id, addr, err)
	}
	_, err = request(cmdDelAddr, encoder, 0)
	// The kernel says EINVAL for an id that nobody has.
	if err != nil && !(id != 0 && errors.Is(err, unix.EINVAL)) {
		return fmt.Errorf("delete mptcp endpoint %d %s: %w", id, addr, err)
	}
	return nil
}

// Endpoints lists what the path manager knows, in its own order.
func Endpoints() ([]Endpoint, error) {
	messages, err := request(cmdGetAddr, nil, netlink.Dump)
	if err != nil {
		return nil, fmt.Errorf("list mptcp endpoints: %w", err)
	}
	var endpoints []Endpoint
	for _, message := range messages {
		decoder, err := netlink.NewAttributeDecoder(message.Data)
		if err != nil {
			return nil, fmt.Errorf("list mptcp endpoints: %w", err)
		}
		for decoder.Next() {
			if decoder.Type() == attrAddr {
				decoder.Nested(func(nested *netlink.AttributeDecoder) error {
					endpoints = append(endpoints, decodeEndpoint(nested))
					return nil
				})
			}
		}
		if err := decoder.Err(); err != nil {
			return nil, fmt.Errorf("list mptcp endpoints: %w", err)
		}
	}
	return endpoints, nil
}

// encodeEndpoint builds the nested address attribute. Flags are left out of a
// deletion: the kernel looks at id and address alone.
func encodeEndpoint(e Endpoint, withFlags bool) (*netlink.AttributeEncoder, error) {
	index := 0
	if e.Dev != "" {
		device, err := net.InterfaceByName(e.Dev)
		if err != nil {
			return nil, fmt.Errorf("device %s: %w", e.Dev, err)
		}
		index = device.Index
	}
	addr := e.Addr.Unmap().WithZone("")
	encoder := netlink.NewAttributeEncoder()
	encoder.Nested(attrAddr, func(nested *netlink.AttributeEncoder) error {
		switch {
		case addr.Is4():
			nested.Uint16(addrFamily, unix.AF_INET)
			nested.Bytes(addrV4, addr.AsSlice())
		case addr.Is6():
			nested.Uint16(addrFamily, unix.AF_INET6)
			nested.Bytes(addrV6, addr.AsSlice())
		}
		if e.ID != 0 || !withFlags {
			nested.Uint8(addrID, e.ID)
		}
		if e.Port != 0 {
			nested.Uint16(addrPort, e.Port)
		}
		if withFlags {
			nested.Uint32(addrFlags, uint32(e.Flags))
		}
		if index != 0 {
			nested.Int32(addrIfIdx, int32(index))
		}
		return nil
	})
	return encoder, nil
}

func decodeEndpoint(decoder *netlink.AttributeDecoder) Endpoint {
	var e Endpoint
	for decoder.Next() {
		switch decoder.Type() {
		case addrID:
			e.ID = decoder.Uint8()
		case addrV4, addrV6:
			addr, _ := netip.AddrFromSlice(decoder.Bytes())
			e.Addr = addr.Unmap() // implicit ones of connections that a listener of both families took are mapped
		case addrPort:
			e.Port = decoder.Uint16()
		case addrFlags:
			e.Flags = Flags(decoder.Uint32())
		case addrIfIdx:
			index := int(decoder.Int32())
			if device, err := net.InterfaceByIndex(index); err == nil {
				e.Dev = device.Name
			}
		}
	}
	return e
}

func be16(b []byte) uint16 {
	if len(b) < 2 {
		return 0
	}
	return binary.BigEndian.Uint16(b)
}
