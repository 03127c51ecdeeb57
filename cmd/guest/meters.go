package main

import (
	"cmp"
	"context"
	"errors"
	"net"
	"net/netip"
	"slices"
	"sync"

	"godwit/netstate/dump"
	"godwit/netstate/meter"
	"godwit/vm/guest"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// meters count packets per address, as they are on the wire, on every NIC, from boot on.
type meters struct {
	mu      sync.Mutex
	devices map[nicID]*meter.Meter
	names   map[nicID]string   // as NICs were called last: udev may rename one that has packets already
	failed  error              // why some NIC has none
	unread  error              // why some could not be read by udp last
	used    map[netip.Addr]use // by the addresses that udp was called for
	silent  silent
}

// nicID is a NIC's index, which no other has that is plugged in later, whatever it is called.
type nicID int

// use is what is known of the datagrams to an address.
type use struct {
	count uint64             // all so far
	flows map[metered]uint64 // when they were last counted
}

// metered is a flow of a device's meter.
type metered struct {
	nic nicID
	key meter.Key
}

// watchAll begins to meter every NIC that is not metered yet, and ends it for those that are gone. What lies over NICs
// has the same packets once more; a container's end has none of the LAN's, and a guest may have hundreds of those.
func (m *meters) watchAll() {
	m.mu.Lock()
	defer m.mu.Unlock()
	links, err := dump.Links()
	if m.failed = err; err != nil {
		return
	}
	m.names = make(map[nicID]string)
	for _, link := range links {
		a := link.Attrs()
		if a.Flags&net.FlagLoopback == 0 && len(a.HardwareAddr) == 6 && a.NetNsID < 0 && !slices.Contains(guest.KindsAbove, link.Type()) {
			m.names[nicID(a.Index)] = a.Name
			m.watch(nicID(a.Index))
		}
	}
	for nic, opened := range m.devices {
		if m.names[nic] == "" {
			opened.Close() //nolint:errcheck // it counts nothing any more
			delete(m.devices, nic)
		}
	}
}

// openMeter is another's in tests: no machine that runs them has a kernel that cannot count.
var openMeter = meter.OpenRecent

// watch begins to meter a device; what prevents it is told by read, and by uncounted, unless the device is gone by
// then, as a container's end may be.
func (m *meters) watch(nic nicID) {
	if m.devices[nic] != nil {
		return
	}
	opened, err := openMeter(m.names[nic])
	if err != nil {
		if _, gone := netlink.LinkByIndex(int(nic)); !errors.As(gone, new(netlink.LinkNotFoundError)) {
			m.failed = err
		}
		return
	}
	if m.devices == nil {
		m.devices = make(map[nicID]*meter.Meter)
	}
	m.devices[nic] = opened
}

// counters answers the method of that name.
func (n *node) counters(context.Context, struct{}) (any, error) {
	c := guest.Counters{Start: n.start, Wrote: n.work.Wrote()}
	var err error
	if c.Meter, err = n.meters.read(); err != nil {
		c.MeterError = err.Error()
	}
	return c, nil
}

func (m *meters) read() ([]guest.Metered, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var all []guest.Metered
	for nic, opened := range m.devices {
		counts, err := opened.Read()
		if err != nil {
			return nil, err
		}
		for key, count := range counts {
			all = append(all, guest.Metered{Device: m.names[nic], Out: key.Out, Src: key.Src, Dst: key.Dst, Proto: key.Proto,
				Port: key.Port, Packets: m.silent.told(nic, key, count.Packets)})
		}
	}
	slices.SortFunc(all, func(a, b guest.Metered) int {
		return cmp.Or(cmp.Compare(a.Device, b.Device), a.Src.Compare(b.Src), a.Dst.Compare(b.Dst), cmp.Compare(a.Proto, b.Proto))
	})
	return all[:min(len(all), guest.MostMetered)], m.failed
}

// udp counts the datagrams to addrs. What the prober asks of our own echo server
// is nobody's use of an address.
func (m *meters) udp(addrs []netip.Addr) (count uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := map[netip.Addr]map[metered]uint64{}
	m.unread = nil
	for nic, opened := range m.devices {
		counts, err := opened.Read()
		if err != nil {
			m.unread = err
			continue
		}
		for key, c := range counts {
			if key.Out || key.Proto != unix.IPPROTO_UDP || key.Port == guest.PortEcho || !slices.Contains(addrs, key.Dst) {
				continue
			}
			if now[key.Dst] == nil {
				now[key.Dst] = map[metered]uint64{}
			}
			now[key.Dst][metered{nic, key}] = c.Packets
		}
	}
	if m.used == nil {
		m.used = make(map[netip.Addr]use)
	}
	for _, addr := range addrs {
		sum := m.used[addr].count + grown(m.used[addr].flows, now[addr])
		m.used[addr] = use{sum, now[addr]}
		count += sum
	}
	return count
}

// uncounted is why datagrams come that udp did not count last; nil: none do.
func (m *meters) uncounted() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.failed != nil {
		return m.failed
	}
	return m.unread
}

// grown is what was counted between two times; a flow that the meter forgot meanwhile has begun again.
func grown(before, now map[metered]uint64) (more uint64) {
	for flow, n := range now {
		if n >= before[flow] {
			n -= before[flow]
		}
		more += n
	}
	return more
}
