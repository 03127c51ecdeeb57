package netstate_test

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"godwit/internal/need"
	"godwit/netstate/tunnel"
)

// TestMTU: guests with an MTU of 1500 and 9000, over paths of 1500, 1400 and 1280, by IPv4 and IPv6, in a
// tunnel over either. A connection that was open keeps its segments, which the tunnel carries in fragments;
// one that begins agrees on such as need none. Neither waits for long, whoever sends.
func TestMTU(t *testing.T) {
	for _, mtu := range []int{1500, 9000} {
		w := newWorld(t, "wireguard")
		w.lanMTU(mtu)
		w.tunnelBetween("gw4", mtu, "100.64.0.11:4804", "100.65.0.11:4804")
		w.tunnelBetween("gw6", mtu, "[fd64:0::11]:4806", "[fd64:1::11]:4806")
		far := w.echoTCP("gb")
		for _, path := range []int{1500, 1400, 1280} {
			w.IP("r", fmt.Sprintf("link set dev upb mtu %d", path))
			w.IP("hb", fmt.Sprintf("link set dev up0 mtu %d", path))
			for _, name := range []string{"gw4", "gw6"} {
				c := cell{w, fmt.Sprintf("MTU %d over %d by %s", mtu, path, name), name, mtu, far}
				c.try((path - tunnel.Overhead(tunnel.WireGuard, name == "gw6")) / 16 * 16) // as the agent has it (detour.Fitting)
			}
		}
	}
}

// lanMTU is that of the guests and the client, and of what is between them and hosts.
func (w *world) lanMTU(mtu int) {
	for ns, devices := range map[string][]string{
		"c": {"eth0"}, "r": {"acc", "lana", "lanb"}, "ga": {"eth0"}, "gb": {"eth0"},
		"ha": {"lan0", "t1a", "br-guest"}, "hb": {"lan0", "t1a", "br-guest"},
	} {
		for _, dev := range devices {
			w.IP(ns, fmt.Sprintf("link set dev %s mtu %d", dev, mtu))
		}
	}
}

// echoTCP sends back what comes, and tells of each connection.
func (w *world) echoTCP(ns string) <-chan net.Conn {
	all := make(chan net.Conn, 16)
	for _, network := range []string{"tcp4", "tcp6"} {
		var l net.Listener
		w.Do(ns, func() (err error) { l, err = net.Listen(network, ":7090"); return err })
		w.t.Cleanup(func() { l.Close() })
		go func() {
			for {
				conn, err := l.Accept()
				if err != nil {
					return
				}
				all <- conn
				go func() { io.Copy(conn, conn); conn.Close() }() //nolint:errcheck // the other end sees it
			}
		}()
	}
	return all
}

type cell struct {
	*world
	name, tunnel string
	mtu          int
	far          <-chan net.Conn
}

// A talk is both ends of a connection.
type talk struct {
	addr      netip.Addr
	near, far net.Conn
}

func (c cell) try(fits int) {
	c.lead(0)
	open := c.connect()
	c.lead(fits)
	late := c.connect()
	for _, one := range open {
		before := c.fragments()
		c.exchange("open", one, c.mtu)
		if c.fragments() == before {
			c.t.Errorf("%s: %s: nothing went in fragments, which shows nothing", c.name, one.addr)
		}
	}
	for _, one := range late {
		before := c.settled()
		c.exchange("late", one, fits)
		if n := c.fragments() - before; n > 0 && c.tunnel == "gw4" { // over IPv6 what is above 1280 goes in two in any case
			c.t.Errorf("%s: %s: %d packets of a connection that began in the tunnel went in fragments", c.name, one.addr, n)
		}
	}
}

// lead makes the two hosts lead the guest's addresses by the tunnel.
func (c cell) lead(fits int) {
	there, here := abroad(), home(true)
	for i := range here.Away {
		here.Away[i].Tunnel, here.Away[i].Fits = c.tunnel, fits
		there.Visiting[i].Tunnel, there.Visiting[i].Fits = c.tunnel, fits
	}
	c.set("hb", there)
	c.set("ha", here)
	c.remind()
}

func (c cell) connect() (all []talk) {
	for _, addr := range []netip.Addr{guest4, guest6} {
		one := talk{addr: addr}
		c.Do("c", func() (err error) {
			one.near, err = net.DialTimeout("tcp", netip.AddrPortFrom(addr, 7090).String(), 5*time.Second)
			return err
		})
		one.far = <-c.far
		c.t.Cleanup(func() { one.near.Close() })
		all = append(all, one)
	}
	return all
}

const (
	exchanged = 64 << 10        // bytes each way
	promptly  = 2 * time.Second // longer than that needs, and shorter than a black hole
)

// exchange sends both ways, and then looks at the segments of both ends, in packets of most bytes.
func (c cell) exchange(kind string, one talk, most int) {
	sent := make(chan error, 1)
	go func() { _, err := one.near.Write(make([]byte, exchanged)); sent <- err }()
	n, buf := 0, make([]byte, 64<<10)
	p := need.Patient(promptly)
	for n < exchanged && !p.Over() {
		one.near.SetReadDeadline(time.Now().Add(20 * time.Millisecond)) //nolint:errcheck // it has one
		got, err := one.near.Read(buf)
		if n += got; err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
			c.t.Errorf("%s, %s: %s: %v", c.name, kind, one.addr, err)
			break
		}
	}
	one.near.SetWriteDeadline(time.Now()) //nolint:errcheck // it has one
	if err := <-sent; err != nil || n < exchanged {
		c.t.Errorf("%s, %s: %s: %d of %d bytes came back in %v: %v", c.name, kind, one.addr, n, exchanged, p.Took(), err)
	}
	headers := 40
	if one.addr.Is6() {
		headers = 60
	}
	const timestamps = 12
	for end, conn := range map[string]net.Conn{"client": one.near, "guest": one.far} {
		if got, want := segment(conn), most-headers-timestamps; got != want {
			c.t.Errorf("%s, %s: %s: the %s's segments have %d bytes, want %d", c.name, kind, one.addr, end, got, want)
		}
	}
}

// settled is fragments once they are no more: on a busy machine connections of before may send something again.
func (c cell) settled() (n int) {
	for range 50 {
		n = c.fragments()
		if time.Sleep(100 * time.Millisecond); c.fragments() == n {
			break
		}
	}
	return n
}

// fragments is how many the hosts and the router between them have made.
func (c cell) fragments() (n int) {
	for _, ns := range []string{"ha", "hb", "r"} {
		var counters []byte
		c.Do(ns, func() error {
			for _, file := range []string{"snmp", "snmp6"} {
				some, err := os.ReadFile("/proc/thread-self/net/" + file)
				if counters = append(counters, some...); err != nil {
					return err
				}
			}
			return nil
		})
		for _, line := range strings.Split(string(counters), "\n") {
			words := strings.Fields(line)
			switch {
			case len(words) == 2 && words[0] == "Ip6FragCreates":
				more, _ := strconv.Atoi(words[1])
				n += more
			case len(words) > ipFragCreates && words[0] == "Ip:":
				more, _ := strconv.Atoi(words[ipFragCreates]) // 0 of the line with its name
				n += more
			}
		}
	}
	return n
}

// ipFragCreates is the place of FragCreates in the line "Ip:" of /proc/net/snmp.
const ipFragCreates = 19
