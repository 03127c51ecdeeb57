package conntrack

import (
	"errors"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"testing"
	"time"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"godwit/internal/need"
)

func TestMain(m *testing.M) { need.Namespace(m) }

// TestSeen: a connection is what others see of it, which of one that is translated at both ends are two machines.
func TestSeen(t *testing.T) {
	const established, timeWait = 3, 7
	port := netip.MustParseAddrPort
	client, guest, inside, node, service := port("10.3.0.2:4000"), port("10.1.1.10:80"), port("172.17.0.2:8080"), port("10.1.1.11:8080"), port("10.96.0.1:443")
	for name, c := range map[string]struct {
		status                     uint32
		state                      uint8
		from, to, replies, replied netip.AddrPort
		want                       []Connection
	}{
		"published":                           {destinationTranslated, established, client, guest, inside, client, []Connection{{guest, client, "established", false, false}}},
		"a port of the guest's own":           {destinationTranslated, established, client, guest, port("10.1.1.10:8080"), client, nil},
		"that is over":                        {destinationTranslated, timeWait, client, guest, inside, client, nil},
		"by a flow table":                     {destinationTranslated | offloaded, 0, client, guest, inside, client, []Connection{{guest, client, "established", false, false}}},
		"asked for within":                    {sourceTranslated, established, inside, client, client, guest, []Connection{{guest, client, "established", false, true}}},
		"asked for within, and over":          {sourceTranslated, timeWait, inside, client, client, guest, []Connection{{guest, client, "time-wait", true, true}}},
		"asked for within, and not there yet": {sourceTranslated, 1, inside, client, client, guest, nil},
		"asked for within, by a flow table, which tells no state": {sourceTranslated | offloaded, timeWait, inside, client, client, guest,
			[]Connection{{guest, client, "established", false, true}}},
		"asked for within, of a service": {sourceTranslated | destinationTranslated, established, inside, service, node, guest,
			[]Connection{{service, inside, "established", false, false}, {guest, node, "established", false, true}}},
		"passed on to another": {sourceTranslated | destinationTranslated, established, client, guest, node, port("10.1.1.10:4000"),
			[]Connection{{guest, client, "established", false, false}, {port("10.1.1.10:4000"), node, "established", false, true}}},
	} {
		e := entry{tuple{unix.IPPROTO_TCP, c.from, c.to}, tuple{unix.IPPROTO_TCP, c.replies, c.replied}, c.status, c.state}
		if got := e.seen(); !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
		e.original.protocol = unix.IPPROTO_UDP
		if got := e.seen(); len(got) > 0 {
			t.Errorf("%s, by UDP: %v", name, got)
		}
	}
}

// TestNotAsked: what the kernel could not be asked for now is not taken for nothing; what it never tells is said to be that.
func TestNotAsked(t *testing.T) {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 0, Max: limit.Max}); err != nil {
		t.Fatal(err)
	}
	all, err := Translated([]netip.Addr{netip.MustParseAddr("10.9.1.1")})
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	if !errors.Is(err, unix.EMFILE) || errors.Is(err, ErrUnsupported) {
		t.Errorf("without a descriptor: %v, %v", all, err)
	}
	for cause, never := range map[error]bool{
		unix.EINVAL: true, unix.EPERM: true, unix.EPROTONOSUPPORT: true, unix.ERANGE: true, os.ErrDeadlineExceeded: true,
		unix.ENOMEM: false, unix.ENOBUFS: false, unix.EINTR: false,
	} {
		if err := refused(&netlink.OpError{Op: "receive", Err: os.NewSyscallError("recvmsg", cause)}); errors.Is(err, ErrUnsupported) != never || !errors.Is(err, cause) {
			t.Errorf("%v: %v", cause, err)
		}
	}
}

// TestOneAddress: the kernel tells of what is asked for at one address of IPv4 alone, however many others it tracks; of
// IPv6 it tells all of TCP.
func TestOneAddress(t *testing.T) {
	need.Root(t)
	need.Program(t, "ip")
	need.Program(t, "nft")
	const script = `ip link set lo up; ip addr replace 10.9.1.1/32 dev lo; ip addr replace 10.9.1.2/32 dev lo; ip addr replace fd00:9::1/128 dev lo nodad; ip addr replace fd00:9::2/128 dev lo nodad
nft 'table inet tracks { chain in { type filter hook input priority 0; ct state established; }; }'`
	if out, err := exec.Command("sh", "-ec", script).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	t.Cleanup(func() { _ = exec.Command("nft", "delete table inet tracks").Run() })
	listener, err := net.Listen("tcp", ":0") //nolint:noctx // it is there at once
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	port := uint16(listener.Addr().(*net.TCPAddr).Port)
	first, second, six := netip.MustParseAddr("10.9.1.1"), netip.MustParseAddr("10.9.1.2"), netip.MustParseAddr("fd00:9::1")
	begin := func(network string, from, to netip.Addr) {
		local := net.Addr(net.TCPAddrFromAddrPort(netip.AddrPortFrom(from, 0)))
		if network == "udp" {
			local = net.UDPAddrFromAddrPort(netip.AddrPortFrom(from, 0))
		}
		dialer := net.Dialer{LocalAddr: local, Timeout: 5 * time.Second}
		c, err := dialer.Dial(network, netip.AddrPortFrom(to, port).String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		if _, err := c.Write([]byte{1}); err != nil {
			t.Fatal(err)
		}
	}
	begin("tcp", first, second)
	begin("udp", first, second)
	begin("tcp", second, first)
	begin("tcp", second, first)
	begin("tcp", six, six)
	begin("tcp", six, netip.MustParseAddr("fd00:9::2"))
	begin("udp", six, six)
	conn, err := netlink.Dial(unix.NETLINK_NETFILTER, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	const confirmed = 1 << 3
	for addr, want := range map[netip.Addr]int{first: 2, second: 1, six: 2} {
		all, err := list(conn, addr, confirmed)
		ours := 0
		for _, e := range all {
			if to := e.original.to; to.Addr() != addr && addr.Is4() || e.original.protocol != unix.IPPROTO_TCP {
				t.Errorf("%v: %+v, too", addr, e)
			} else if to.Port() == port {
				ours++
			}
		}
		if err != nil || ours != want {
			t.Errorf("%v: %d, %v; want %d", addr, ours, err, want)
		}
	}
	if all, err := list(conn, first, sourceTranslated); err != nil || len(all) > 0 {
		t.Errorf("translated: %+v, %v", all, err)
	}
}
