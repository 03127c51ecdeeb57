package main

import (
	"cmp"
	"net"
	"net/netip"
	"slices"
	"sync"

	"godwit/lab/traffic/record"
	"godwit/netstate/meter"
	"godwit/vm/guest"

	"golang.org/x/sys/unix"
)

// meters count packets per address, as they are on the wire, on every NIC, from boot on.
type meters struct {
	mu      sync.Mutex
	devices map[string]*meter.Meter
	failed  error
	asked   map[netip.Addr]uint64 // datagrams to it when udp was last called
}

// watchAll begins to meter every NIC.
func (m *meters) watchAll() {
	nics, err := net.Interfaces()
	if err != nil {
		m.failed = err
		return
	}
	for _, nic := range nics {
		if nic.Flags&net.FlagLoopback == 0 && len(nic.HardwareAddr) == 6 {
			m.watch(nic.Name)
		}
	}
}

// watch begins to meter a device; what prevents it is told by read.
func (m *meters) watch(device string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.devices[device] != nil {
		return
	}
	opened, err := meter.Open(device)
	if err != nil {
		m.failed = err
		return
	}
	if m.devices == nil {
		m.devices = make(map[string]*meter.Meter)
	}
	m.devices[device] = opened
}

func (m *meters) read() ([]guest.Metered, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var all []guest.Metered
	for device, opened := range m.devices {
		counts, err := opened.Read()
		if err != nil {
			return nil, err
		}
		for key, count := range counts {
			all = append(all, guest.Metered{Device: device, Out: key.Out, Src: key.Src, Dst: key.Dst, Proto: key.Proto,
				Port: key.Port, Packets: count.Packets, Bytes: count.Bytes})
		}
	}
	slices.SortFunc(all, func(a, b guest.Metered) int {
		return cmp.Or(cmp.Compare(a.Device, b.Device), a.Src.Compare(b.Src), a.Dst.Compare(b.Dst), cmp.Compare(a.Proto, b.Proto))
	})
	return all[:min(len(all), meteredListed)], m.failed
}

// meteredListed bounds an answer to what fits into a line of the channel.
const meteredListed = 4000

// udp counts the datagrams to addrs: all, and those since it was last asked about
// the same address (none at first). What the prober asks of our own echo server
// is nobody's use of an address.
func (m *meters) udp(addrs []netip.Addr) (count, lately uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, addr := range addrs {
		var n uint64
		for _, opened := range m.devices {
			sum, err := opened.Sum(func(key meter.Key) bool {
				return !key.Out && key.Dst == addr && key.Proto == unix.IPPROTO_UDP && key.Port != record.PortEcho
			})
			if err == nil {
				n += sum.Packets
			}
		}
		count += n
		if before, asked := m.asked[addr]; asked {
			lately += n - min(n, before)
		}
		if m.asked == nil {
			m.asked = make(map[netip.Addr]uint64)
		}
		m.asked[addr] = n
	}
	return count, lately
}
