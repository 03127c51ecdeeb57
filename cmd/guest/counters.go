package main

import (
	"bufio"
	"context"
	"net"
	"os"
	"strconv"
	"strings"

	"godwit/netstate/dump"
	"godwit/vm/guest"

	"github.com/vishvananda/netlink"
)

func (n *node) counters(context.Context, struct{}) (any, error) {
	links, err := dump.Links()
	if err != nil {
		return nil, err
	}
	counters := guest.Counters{MPTCP: table("/proc/net/netstat", "MPTcpExt"), TCP: table("/proc/net/snmp", "Tcp")}
	for _, link := range links {
		a := link.Attrs()
		if a.Flags&net.FlagLoopback != 0 || a.Statistics == nil {
			continue
		}
		s := a.Statistics
		counters.NICs = append(counters.NICs, guest.NICCounters{
			Name: a.Name, MAC: a.HardwareAddr.String(),
			RxPackets: s.RxPackets, TxPackets: s.TxPackets, RxBytes: s.RxBytes, TxBytes: s.TxBytes,
			RxDropped: s.RxDropped, TxDropped: s.TxDropped, RxErrors: s.RxErrors, TxErrors: s.TxErrors,
			QueueDrop: queueDrops(link),
		})
	}
	counters.Meter, err = n.meters.read()
	if err != nil {
		counters.MeterError = err.Error()
	}
	return counters, nil
}

// queueDrops adds up what the link's queueing disciplines dropped.
func queueDrops(link netlink.Link) uint64 {
	disciplines, err := netlink.QdiscList(link)
	if err != nil {
		return 0
	}
	var drops uint64
	for _, q := range disciplines {
		if s := q.Attrs().Statistics; s != nil && s.Queue != nil && q.Attrs().Parent == netlink.HANDLE_ROOT {
			drops += uint64(s.Queue.Drops)
		}
	}
	return drops
}

// table reads one group of a kernel file in which a line of names stands above a
// line of numbers.
func table(path, group string) map[string]int64 {
	file, err := os.Open(path)
	if err != nil {
		return nil
	}
	defer file.Close()
	var names []string
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		rest, ok := strings.CutPrefix(lines.Text(), group+": ")
		if !ok {
			continue
		}
		fields := strings.Fields(rest)
		if names == nil {
			names = fields
			continue
		}
		values := make(map[string]int64, len(fields))
		for i, field := range fields[:min(len(fields), len(names))] {
			if value, err := strconv.ParseInt(field, 10, 64); err == nil {
				values[names[i]] = value
			}
		}
		return values
	}
	return nil
}
