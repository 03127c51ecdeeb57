package tunnel

import (
	"net/netip"
	"testing"

	"godwit/netstate/internal/nettest"
)

// TestInnerTaken: what has one of a tunnel's inner addresses, or a way to one, is named; the tunnel itself is not, nor one
// that has all of 169.254.0.0/16.
func TestInnerTaken(t *testing.T) {
	n := nettest.New(t, "a")
	n.IP("a", "tuntap add gwt0 mode tun\nlink set gwt0 up\ntuntap add vpn mode tun\nlink set vpn up")
	c := Config{Name: "gwt1", Local: netip.MustParseAddrPort("10.9.1.2:1000"), Remote: netip.MustParseAddrPort("10.9.2.2:1000")}
	own, peer := InnerAddrs(c.Local, c.Remote)
	near := netip.PrefixFrom(own, 28).Masked().Addr().Next()
	for near == own || near == peer {
		near = near.Next()
	}
	far := netip.MustParseAddr("169.254.1.1")
	if far == own || far == peer {
		t.Fatal("choose another")
	}
	for _, x := range []struct{ name, addr, by string }{
		{"another tunnel's", own.String() + " peer " + peer.String() + " dev gwt0", "gwt0"},
		{"another tunnel's, as its other end", peer.String() + " peer " + own.String() + " dev gwt0", "gwt0"},
		{"a neighbour of somebody else", near.String() + "/28 dev vpn", "vpn"},
		{"the other end of somebody else", far.String() + " peer " + peer.String() + " dev vpn", "vpn"},
		{"somewhere in 169.254.0.0/16", far.String() + "/16 dev vpn", ""},
		{"elsewhere", far.String() + "/32 dev vpn", ""},
	} {
		n.IP("a", "addr add "+x.addr)
		n.Do("a", func() error {
			by, err := InnerTaken(c)
			if by != x.by {
				t.Errorf("%s (%s): taken by %q, want %q", x.name, x.addr, by, x.by)
			}
			itself := c
			itself.Name = x.by
			if by, err := InnerTaken(itself); by != "" || err != nil {
				t.Errorf("%s: by itself: %q, %v", x.name, by, err)
			}
			return err
		})
		n.IP("a", "addr del "+x.addr)
	}
}

// TestInnerAddrs: both ends derive the same pair, of link-local addresses that nobody else is known to have.
func TestInnerAddrs(t *testing.T) {
	clouds := netip.MustParsePrefix("169.254.169.0/24")
	for port := range 20000 {
		a, b := netip.AddrPortFrom(netip.MustParseAddr("192.0.2.1"), uint16(1024+port)), netip.MustParseAddrPort("192.0.2.2:4789")
		own, peer := InnerAddrs(a, b)
		peer2, own2 := InnerAddrs(b, a)
		if own != own2 || peer != peer2 || own == peer || !own.IsLinkLocalUnicast() || !peer.IsLinkLocalUnicast() || own.As4()[2] == 0 || own.As4()[2] == 255 || clouds.Contains(own) {
			t.Fatalf("%s and %s: %s, %s; from the other end %s, %s", a, b, own, peer, own2, peer2)
		}
	}
}
