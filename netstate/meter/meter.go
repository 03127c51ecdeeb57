// Package meter counts IP packets on a device as they are on the wire.
//
// The kernel's own counters see a segmentation super-packet as one; this one
// counts what it becomes: as many packets as its payload makes segments, each
// with its own headers. It is a packet socket with a BPF program that counts into
// a map and then wants nothing, so no packet is copied. It needs no compiler and
// loads on kernels from 5.12 (atomic add) on.
//
// What is counted: IPv4 and IPv6 packets that enter or leave the device, in its
// network namespace, before any nftables rule on the way in and after the last
// on the way out, also those that the far end or a full queue then drops. Bytes
// are IP bytes: header and payload, no Ethernet. Fragments count singly, without
// a port; IPv6 extension headers count as payload, their packets without a port. Tunnels
// that the kernel segments after encapsulation (VXLAN with small inner packets)
// count with the outer headers only.
package meter

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// Key tells flows apart. Frames that are not IP have a Key of direction only.
type Key struct {
	Out      bool // left the device; false: came in
	Src, Dst netip.Addr
	Proto    uint8  // IP protocol; of IPv6 the first next header
	Port     uint16 // UDP destination, else 0
}

// Count is what passed.
type Count struct {
	Packets uint64 // on the wire
	Bytes   uint64 // of IP on the wire
	Frames  uint64 // as the device had them, super-packets being one
}

// Add returns the sum.
func (c Count) Add(o Count) Count {
	return Count{c.Packets + o.Packets, c.Bytes + o.Bytes, c.Frames + o.Frames}
}

// maxKeys bounds the flows told apart; the packets of others are counted
// together under Rest.
const maxKeys = 8192

// recentKeys is that of a meter that forgets. The kernel sets 128 aside for each processor.
const recentKeys = 4096

// Rest is the key of what found no room, of both directions.
var Rest = Key{Proto: restProto}

const restProto = 255

// A Meter counts on one device from Open to Close.
type Meter struct {
	device string
	flows  *ebpf.Map
	prog   *ebpf.Program
	socket int
}

// Open starts counting on a device of the calling thread's network namespace; the
// meter may then be used from anywhere. It forgets nothing: what is counted by itself is what came first.
func Open(device string) (*Meter, error) {
	return openWith(device, &ebpf.MapSpec{Type: ebpf.Hash, MaxEntries: maxKeys, Flags: unix.BPF_F_NO_PREALLOC})
}

// OpenRecent is Open of a meter that runs for long. Where it has no room it forgets a flow of which nothing was seen for
// long; one that is seen again then counts from 0.
func OpenRecent(device string) (*Meter, error) {
	return openWith(device, &ebpf.MapSpec{Type: ebpf.LRUHash, MaxEntries: recentKeys})
}

func openWith(device string, flows *ebpf.MapSpec) (*Meter, error) {
	m := &Meter{device: device, socket: -1}
	if err := m.open(flows); err != nil {
		m.Close()
		return nil, fmt.Errorf("open meter on %s: %w", device, err)
	}
	return m, nil
}

func (m *Meter) open(flows *ebpf.MapSpec) error {
	ifi, err := net.InterfaceByName(m.device)
	if err != nil {
		return err
	}
	flows.Name, flows.KeySize, flows.ValueSize = "godwit_meter", keySize, valueSize
	if m.flows, err = ebpf.NewMap(flows); err != nil {
		return fmt.Errorf("make map: %w", err)
	}
	if err := m.flows.Put(append(append(make([]byte, 2, keySize), restProto), make([]byte, keySize-3)...), make([]byte, valueSize)); err != nil {
		return fmt.Errorf("make map: %w", err)
	}
	m.prog, err = ebpf.NewProgram(&ebpf.ProgramSpec{Name: "godwit_meter", Type: ebpf.SocketFilter, Instructions: program(m.flows.FD()), License: "GPL"})
	if err != nil {
		return fmt.Errorf("load program: %w", err)
	}
	// SOCK_DGRAM: the program sees the packet from its IP header on, on devices
	// with and without Ethernet. Protocol 0 until the program is in place.
	m.socket, err = unix.Socket(unix.AF_PACKET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open packet socket: %w", err)
	}
	if err := unix.SetsockoptInt(m.socket, unix.SOL_SOCKET, unix.SO_ATTACH_BPF, m.prog.FD()); err != nil {
		return fmt.Errorf("attach program: %w", err)
	}
	all := binary.NativeEndian.Uint16([]byte{unix.ETH_P_ALL >> 8, unix.ETH_P_ALL & 0xff})
	return unix.Bind(m.socket, &unix.SockaddrLinklayer{Protocol: all, Ifindex: ifi.Index})
}

// Counts says whether the device of its name is the one that it counts on: not one that was made anew, or renamed.
func (m *Meter) Counts() bool {
	named, err := unix.NewIfreq(m.device)
	if err != nil || unix.IoctlIfreq(m.socket, unix.SIOCGIFINDEX, named) != nil {
		return false
	}
	at, err := unix.Getsockname(m.socket) // of a device that has gone it is bound to none
	on, is := at.(*unix.SockaddrLinklayer)
	return err == nil && is && on.Ifindex == int(named.Uint32())
}

// Read returns all counts since Open, or since a flow was seen again. Counting goes on meanwhile: flows may come and
// go. The kernel is asked for many at once, as it tells them in an order of their own that such changes leave alone;
// asked for the next after each, it begins again where that is gone, and again.
func (m *Meter) Read() (map[Key]Count, error) {
	counts := map[Key]Count{}
	keys, values := make([][keySize]byte, atOnce), make([][valueSize]byte, atOnce)
	cursor := new(ebpf.MapBatchCursor)
	for last := false; !last; {
		n, err := m.flows.BatchLookup(cursor, keys, values, nil)
		if last = errors.Is(err, ebpf.ErrKeyNotExist); err != nil && !last {
			return nil, fmt.Errorf("read meter on %s: %w", m.device, err)
		}
		for i := range n {
			if k, c := decode(keys[i], values[i]); c.Frames > 0 {
				counts[k] = c
			}
		}
	}
	return counts, nil
}

// atOnce is how many flows the kernel is asked for; more than have the same hash.
const atOnce = 512

// Sum returns the total of the flows that match.
func (m *Meter) Sum(match func(Key) bool) (Count, error) {
	counts, err := m.Read()
	var sum Count
	for k, c := range counts {
		if match(k) {
			sum = sum.Add(c)
		}
	}
	return sum, err
}

// Close stops counting. The counts are gone then.
func (m *Meter) Close() error {
	var errs []error
	if m.socket >= 0 {
		errs = append(errs, unix.Close(m.socket))
		m.socket = -1
	}
	if m.prog != nil {
		errs = append(errs, m.prog.Close())
	}
	if m.flows != nil {
		errs = append(errs, m.flows.Close())
	}
	return errors.Join(errs...)
}

// Layout of a key: direction, version, protocol, 0, port (2, network order), 0, 0,
// source (16), destination (16). Of a value: packets, bytes, frames (8 each,
// native order).
const (
	keySize   = 40
	valueSize = 24
)

func decode(key [keySize]byte, value [valueSize]byte) (Key, Count) {
	k := Key{Out: key[0] == 1, Proto: key[2], Port: binary.BigEndian.Uint16(key[4:])}
	switch key[1] {
	case 4:
		k.Src, k.Dst = netip.AddrFrom4([4]byte(key[8:12])), netip.AddrFrom4([4]byte(key[24:28]))
	case 6:
		k.Src, k.Dst = netip.AddrFrom16([16]byte(key[8:24])), netip.AddrFrom16([16]byte(key[24:40]))
	}
	e := binary.NativeEndian
	return k, Count{e.Uint64(value[:]), e.Uint64(value[8:]), e.Uint64(value[16:])}
}
