package netstate_test

import (
	"strings"
	"testing"

	"godwit/netstate"
	"godwit/netstate/internal/nettest"
)

// TestForwardingOfOthers: a host that somebody makes a router of IPv6 while a guest is here, where it forwards already,
// goes on forwarding when the guest has gone, by the routes that it has; one that nobody made one does not.
func TestForwardingOfOthers(t *testing.T) {
	n := nettest.New(t, "h", "r")
	n.Wire("h", "up0", "r", "up0")
	n.IP("h", "link add br-guest type bridge\nlink set br-guest up\ntuntap add gw0 mode tun\nlink set gw0 up")
	write := func(name, value string) {
		n.Run("h", "sh", "-c", "echo "+value+" > /proc/sys/net/ipv6/conf/"+name)
	}
	is := func(name string) string {
		return strings.TrimSpace(n.Run("h", "cat", "/proc/sys/net/ipv6/conf/"+name))
	}
	s := netstate.State{Guest: "web", Bridge: "br-guest", LAN: "lan0", Visiting: []netstate.Visiting{
		{Addr: guest6, MAC: guestMAC, Taps: []string{"t1a"}, Tunnel: "gw0"}}}
	const all, bridge, toCome, listens = "all/forwarding", "br-guest/forwarding", "default/forwarding", "up0/accept_ra"
	end := map[string]func() error{
		"the last guest leaves": func() error { return netstate.Clear("web") },
		"all is cleaned up":     func() error { _, err := netstate.CleanUp(nil); return err },
	}
	for what, leave := range end {
		for _, c := range []struct {
			name  string
			then  []string // name, value, …
			stays bool
		}{
			{"nobody", nil, false},
			{"a person", []string{all, "1"}, true},
			{"one who looks first", []string{toCome, "1"}, true},
			{"one who changed his mind", []string{all, "1", all, "0"}, false},
		} {
			write(all, "0")
			write(listens, "1")
			n.Do("h", func() error { return netstate.Set(s) })
			for i := 0; i < len(c.then); i += 2 {
				write(c.then[i], c.then[i+1])
			}
			n.Do("h", func() error { return netstate.Set(s) })
			if is(all) != "1" || is(bridge) != "1" || is(listens) != "2" {
				t.Fatalf("%s: the host forwards %s, the bridge %s, and listens %s, which shows nothing", c.name, is(all), is(bridge), is(listens))
			}
			n.Do("h", leave)
			want := map[string]string{all: "0", bridge: "0", toCome: "0", listens: "1"}
			if c.stays {
				want = map[string]string{all: "1", bridge: "1", toCome: "1", listens: "2"}
			}
			for name, value := range want {
				if got := is(name); got != value {
					t.Errorf("%s made it a router, %s: %s is %s, want %s", c.name, what, name, got, value)
				}
			}
		}
	}
}

// TestBridgeMadeAnewForwards: the host answers for a guest's router at a bridge that was made while it forwarded, too.
func TestBridgeMadeAnewForwards(t *testing.T) {
	n := nettest.New(t, "h")
	n.Run("h", "sh", "-c", "echo 0 > /proc/sys/net/ipv6/conf/all/forwarding")
	n.IP("h", "link add br-guest type bridge\nlink set br-guest up\ntuntap add gw0 mode tun\nlink set gw0 up")
	s := netstate.State{Guest: "web", Bridge: "br-guest", LAN: "lan0", Visiting: []netstate.Visiting{
		{Addr: guest6, MAC: guestMAC, Taps: []string{"t1a"}, Tunnel: "gw0"}}}
	n.Do("h", func() error { return netstate.Set(s) })
	n.IP("h", "link del br-guest\nlink add br-guest type bridge\nlink set br-guest up")
	n.Do("h", func() error {
		if lacking, err := netstate.Lacking([]netstate.State{s}); err != nil || len(lacking) != 1 {
			t.Errorf("lacking %v, %v", lacking, err)
		}
		return netstate.Set(s)
	})
	if on := strings.TrimSpace(n.Run("h", "cat", "/proc/sys/net/ipv6/conf/br-guest/forwarding")); on != "1" {
		t.Errorf("the bridge forwards: %s", on)
	}
}
