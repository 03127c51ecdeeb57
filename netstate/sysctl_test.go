package netstate_test

import (
	"strings"
	"testing"

	"godwit/netstate"
	"godwit/netstate/internal/nettest"
)

// TestSysctlsOfTheOperator: what somebody sets while a guest is here is his word, and stays when the guest has gone; also
// where it is set to ours again meanwhile. What nobody has set is as it was.
func TestSysctlsOfTheOperator(t *testing.T) {
	n := nettest.New(t, "h")
	n.IP("h", "link add br-guest type bridge\nlink set br-guest up\ntuntap add gw0 mode tun\nlink set gw0 up")
	const forwarding, filter, delay, all = "ipv4/conf/br-guest/forwarding", "ipv4/conf/br-guest/rp_filter", "ipv4/neigh/br-guest/proxy_delay", "ipv4/ip_forward"
	write := func(pairs ...string) {
		t.Helper()
		for i := 0; i < len(pairs); i += 2 {
			n.Run("h", "sh", "-c", "echo "+pairs[i+1]+" > /proc/sys/net/"+pairs[i])
		}
	}
	s := netstate.State{Guest: "web", Bridge: "br-guest", LAN: "lan0", Visiting: []netstate.Visiting{
		{Addr: guest4, MAC: guestMAC, Taps: []string{"t1a"}, Tunnel: "gw0"}}}
	for _, c := range []struct {
		name         string
		before, then []string
		want         []string
	}{
		{"nobody", []string{all, "0", filter, "1", delay, "80"}, nil, []string{forwarding, "0", filter, "1", delay, "80"}},
		{"another value", []string{all, "0", filter, "1", delay, "80"}, []string{filter, "0", delay, "40"}, []string{forwarding, "0", filter, "0", delay, "40"}},
		{"what it was", []string{all, "0", filter, "1"}, []string{filter, "1"}, []string{filter, "1"}},
		{"the host forwards", []string{all, "0"}, []string{all, "1"}, []string{forwarding, "1"}},
		{"the host forwarded, but by the bridge", []string{all, "1", forwarding, "0"}, nil, []string{forwarding, "0"}},
		{"the host forwards no more", []string{all, "1"}, []string{all, "0"}, []string{forwarding, "0"}},
	} {
		for _, again := range []bool{false, true} {
			write(c.before...)
			n.Do("h", func() error { return netstate.Set(s) })
			write(c.then...)
			if again {
				n.Do("h", func() error { return netstate.Set(s) })
				if on := strings.TrimSpace(n.Run("h", "cat", "/proc/sys/net/"+forwarding)); on != "1" {
					t.Fatalf("%s: forwarding is %s, which shows nothing", c.name, on)
				}
			}
			n.Do("h", func() error { return netstate.Clear("web") })
			for i := 0; i < len(c.want); i += 2 {
				if got := strings.TrimSpace(n.Run("h", "cat", "/proc/sys/net/"+c.want[i])); got != c.want[i+1] {
					t.Errorf("%s, set again %v: %s is %s afterwards, want %s", c.name, again, c.want[i], got, c.want[i+1])
				}
			}
		}
	}
}
