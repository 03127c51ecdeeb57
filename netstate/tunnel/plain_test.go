package tunnel

import (
	"context"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"godwit/netstate/internal/nettest"
	"godwit/netstate/netns"
)

// TestLinkRequests holds what we ask of the kernel against what iproute2 6.1 asks for the
// same tunnel (captured), for kernels that have it.
func TestLinkRequests(t *testing.T) {
	for _, c := range []struct {
		command, kind, a, b string
		mark                int
		captured            string // from nlmsghdr on
		defaults            map[string]string
	}{
		{
			command: "type gre local 10.9.1.2 remote 10.9.2.2 ttl 64 key 1745030691 nopmtudisc ignore-df fwmark 7",
			kind:    GRE, a: "10.9.1.2:51820", b: "10.9.2.2:51821", mark: 7,
			captured: `bc000000 10000506 d294026b 00000000 00000000 00000000 00000000 00000000
				08000400 dc050000 09000300 67777430 00000000 88001200 07000100 67726500
				7c000200 08000400 68030e23 08000500 68030e23 06000200 20000000 06000300
				20000000 08000600 0a090102 08000700 0a090202 05000a00 00000000 05001300
				01000000 05000900 00000000 05000800 40000000 08001400 07000000 06000e00
				00000000 06000f00 00000000 06001000 00000000 06001100 00000000`,
		},
		{
			command: "type ip6gre local fd09:1::2 remote fd09:2::2 ttl 64 key 2744222321 encaplimit none",
			kind:    GRE, a: "[fd09:1::2]:51820", b: "[fd09:2::2]:51821",
			captured: `e0000000 10000506 d294026b 00000000 00000000 00000000 00000000 00000000
				08000400 dc050000 09000300 67777430 00000000 ac001200 0a000100 69703667
				72650000 9c000200 08000400 a3918271 08000500 a3918271 06000200 20000000
				06000300 20000000 14000600 fd090001 00000000 00000000 00000002 14000700
				fd090002 00000000 00000000 00000002 05000800 40000000 05000b00 04000000
				08000c00 00000000 08000d00 01000000 08001400 00000000 05001600 01000000
				06000e00 00000000 06000f00 02000000 06001000 00000000 06001100 00000000`,
			// the limit that its flag turns off, the version of ERSPAN, checksums of FOU
			defaults: map[string]string{"18/2/11": "04", "18/2/22": "01", "18/2/15": "0200"},
		},
		{
			command: "type ipip local 10.9.1.2 remote 10.9.2.2 ttl 64 pmtudisc mode ipip",
			kind:    IPIP, a: "10.9.1.2:51820", b: "10.9.2.2:51821",
			captured: `a4000000 10000506 d294026b 00000000 00000000 00000000 00000000 00000000
				08000400 dc050000 09000300 67777430 00000000 70001200 08000100 69706970
				64000200 05000900 04000000 08000200 0a090102 08000300 0a090202 05000a00
				01000000 05000500 00000000 05000400 40000000 08000100 00000000 08001400
				00000000 06000f00 00000000 06001000 00000000 06001100 00000000 06001200
				00000000`,
		},
		{
			command: "type ip6tnl local fd09:1::2 remote fd09:2::2 ttl 64 encaplimit none mode any",
			kind:    IPIP, a: "[fd09:1::2]:51820", b: "[fd09:2::2]:51821",
			captured: `c8000000 10000506 d294026b 00000000 00000000 00000000 00000000 00000000
				08000400 dc050000 09000300 67777430 00000000 94001200 0a000100 69703674
				6e6c0000 84000200 05000900 00000000 14000200 fd090001 00000000 00000000
				00000002 14000300 fd090002 00000000 00000000 00000002 05000400 40000000
				05000600 04000000 08000700 00000000 08000800 01000000 08000100 00000000
				08001400 00000000 06000f00 00000000 06001000 02000000 06001100 00000000
				06001200 00000000`,
			defaults: map[string]string{"18/2/6": "04", "18/2/16": "0200"},
		},
	} {
		t.Run(c.command, func(t *testing.T) {
			cfg := ends(t, c.kind, c.a, c.b)[0]
			cfg.Mark, cfg.MTU = c.mark, 1500
			ours := attributes(t, linkRequest(cfg).Serialize())
			theirs := attributes(t, unhex(t, c.captured))
			for path, value := range ours {
				if theirs[path] != value {
					t.Errorf("attribute %s is %s, iproute2 says %q", path, value, theirs[path])
				}
			}
			for path, value := range theirs {
				if _, ok := ours[path]; !ok && strings.Trim(value, "0") != "" && c.defaults[path] != value {
					t.Errorf("attribute %s is missing, iproute2 says %s", path, value)
				}
			}
		})
	}
}

func unhex(t *testing.T, text string) []byte {
	b, err := hex.DecodeString(strings.Join(strings.Fields(text), ""))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// attributes of a message of RTM_NEWLINK: value by path of types; "head" is message type,
// flags and the rest of the ifinfomsg.
func attributes(t *testing.T, message []byte) map[string]string {
	head := append(append([]byte{}, message[4:8]...), message[16:32]...)
	all := map[string]string{"head": hex.EncodeToString(head)}
	var walk func(prefix string, b []byte)
	walk = func(prefix string, b []byte) {
		for len(b) >= 4 {
			n, kind := int(binary.NativeEndian.Uint16(b)), binary.NativeEndian.Uint16(b[2:])
			if n < 4 || n > len(b) {
				t.Fatalf("attribute %s%d of %d bytes in %d", prefix, kind, n, len(b))
			}
			path := fmt.Sprintf("%s%d", prefix, kind)
			if path == "18" || path == "18/2" { // IFLA_LINKINFO, IFLA_INFO_DATA
				walk(path+"/", b[4:n])
			} else {
				all[path] = strings.TrimRight(hex.EncodeToString(b[4:n]), "0")
				if path != "18/1" && path != "3" { // names end where they end
					all[path] = hex.EncodeToString(b[4:n])
				}
			}
			b = b[min(len(b), (n+3)&^3):]
		}
	}
	walk("", message[32:])
	return all
}

// TestSameKey: both ends of a GRE tunnel have one key, and two tunnels of a pair two.
func TestSameKey(t *testing.T) {
	key := func(c Config) string { return attributes(t, linkRequest(c).Serialize())["18/2/5"] }
	one, other := ends(t, GRE, "10.9.1.2:1000", "10.9.2.2:1000"), ends(t, GRE, "10.9.1.2:1001", "10.9.2.2:1000")
	if key(one[0]) != key(one[1]) || key(one[0]) == key(other[0]) || len(key(one[0])) != 8 {
		t.Errorf("keys %s and %s; another tunnel's %s", key(one[0]), key(one[1]), key(other[0]))
	}
}

// TestSupported: what the kernel says and what can be made are the same; a kind that it
// lacks has a name and a substitute, and nothing is left of the trial.
func TestSupported(t *testing.T) {
	n := nettest.New(t, "a", "b")
	n.Wire("a", "up", "b", "far")
	n.IP("a", "link set dev up mtu 9000\naddr add 10.9.1.2/24 dev up\naddr add fd09:1::2/64 dev up nodad")
	for _, kind := range Kinds {
		for outer6, at := range map[bool][2]string{false: {"10.9.1.2:4789", "10.9.1.9:4789"}, true: {"[fd09:1::2]:4789", "[fd09:1::9]:4789"}} {
			err := netns.Do(n.Name("a"), func() error { return Supported(kind, outer6) })
			var lacks *Unsupported
			if err != nil && (!errors.As(err, &lacks) || !strings.Contains(err.Error(), "load the module") || !strings.Contains(err.Error(), "use wireguard")) {
				t.Errorf("%s: %v", kind, err)
			}
			if kind == Auto || kind == WireGuard {
				if err != nil {
					t.Errorf("%s: %v", kind, err)
				}
				continue
			}
			t.Logf("%s, outer IPv6 %t: %v", kind, outer6, err)
			if has := kernelHas(n, "b", kind, outer6); has != (err == nil) {
				t.Errorf("%s, outer IPv6 %t: this kernel has it: %t; supported: %v", kind, outer6, has, err)
			}
			c := ends(t, kind, at[0], at[1])[0]
			c.MTU, c.Inner, c.PeerInner = 1500, netip.MustParseAddr("169.254.1.2"), netip.MustParseAddr("169.254.1.3")
			made := netns.Do(n.Name("a"), func() error {
				carrier, _, err := carry(c)
				if err == nil {
					carrier.close()
				}
				return err
			})
			if (made == nil) != (err == nil) {
				t.Errorf("%s: supported: %v, made: %v", kind, err, made)
			}
			n.Do("a", func() error {
				if _, err := netlink.LinkByName(c.Name); err == nil {
					t.Errorf("%s: device %s is left", kind, c.Name)
				}
				return nil
			})
		}
	}
}

// TestSupportedLeavesNothing: there is never a device of the trial on the host, so one that is killed meanwhile
// leaves none.
func TestSupportedLeavesNothing(t *testing.T) {
	n := nettest.New(t, "a")
	n.Do("a", func() error {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		updates, end, err := linkUpdates(ctx)
		if err != nil {
			return err
		}
		defer end()
		if err := Supported(VXLAN, false); err != nil && !errors.As(err, new(*Unsupported)) {
			return err
		}
		if err := netlink.LinkAdd(&netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "last"}}); err != nil {
			return err
		}
		for u := range updates {
			if u.Attrs().Name == "last" {
				return nil
			}
			t.Errorf("device %s was made, or changed", u.Attrs().Name)
		}
		return ctx.Err()
	})
}

// TestOverhead: what each kind adds, from the formats (RFC 2003, 2473, 2784, 2890, 7348).
func TestOverhead(t *testing.T) {
	four, six := netip.MustParseAddr("10.1.1.5"), netip.MustParseAddr("fd01::5")
	for _, c := range []struct {
		kind                 string
		outer6               bool
		adds                 int
		fragments, carries16 bool
	}{
		{WireGuard, false, 80, true, true},
		{WireGuard, true, 80, true, true},
		{Auto, false, 80, true, true},
		{VXLAN, false, 20 + 8 + 8 + 14, true, true},
		{VXLAN, true, 40 + 8 + 8 + 14, false, true},
		{GRE, false, 20 + 4 + 4, true, true},
		{GRE, true, 40 + 4 + 4, false, true},
		{IPIP, false, 20, false, false},
		{IPIP, true, 40, false, true},
	} {
		if got := Overhead(c.kind, c.outer6); got != c.adds {
			t.Errorf("%s, outer IPv6 %t: adds %d, want %d", c.kind, c.outer6, got, c.adds)
		}
		if Fragments(c.kind, c.outer6) != c.fragments || Carries(c.kind, c.outer6, six) != c.carries16 || !Carries(c.kind, c.outer6, four) {
			t.Errorf("%s, outer IPv6 %t: fragments %t, carries IPv6 %t", c.kind, c.outer6, !c.fragments, !c.carries16)
		}
	}
}
