package outside

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv4"

	"godwit/agent/config"
	"godwit/internal/need"
	"godwit/netstate/dhcp"
	"godwit/netstate/netns"
	"godwit/vm/guest"
)

// TestTakenSaysHowFar: of a guest that does not take its address, the error says what it
// did instead.
func TestTakenSaysHowFar(t *testing.T) {
	o := New(Config{Bridge: "none"})
	for _, c := range []struct {
		words []dhcp.Word
		want  string
	}{
		{nil, "asks for no address"},
		{[]dhcp.Word{dhcp.Asks, dhcp.Asks}, "took no answer"},
		{[]dhcp.Word{dhcp.Asks, dhcp.Other}, "another DHCP server"},
		{[]dhcp.Word{dhcp.Asks, dhcp.Takes}, "does not answer there"},
		{[]dhcp.Word{dhcp.Asks, dhcp.Takes, dhcp.Declines}, "10.2.1.10 by DHCP: it is in use by somebody"},
	} {
		words := make(chan dhcp.Word, 9)
		for _, w := range c.words {
			words <- w
		}
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			for len(words) > 0 {
				time.Sleep(time.Millisecond)
			}
			time.Sleep(10 * time.Millisecond)
			cancel()
		}()
		err := o.taken(ctx, "52:54:00:00:01:0b", netip.MustParseAddr("10.2.1.10"), words)
		if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), "52:54:00:00:01:0b") {
			t.Errorf("%v: %v, want %q", c.words, err, c.want)
		}
	}
}

// TestInUseBySomebodyElse: an address for which somebody else answers is not given to the guest, and the error says
// whose it is; one that somebody takes while the guest is to ask for it is not given any more.
func TestInUseBySomebodyElse(t *testing.T) {
	need.Root(t)
	const spare, other = "52:54:00:00:01:0b", "52:54:00:00:02:0a"
	ip := func(lines ...string) error {
		for _, line := range lines {
			if out, err := exec.Command("ip", strings.Fields(line)...).CombinedOutput(); err != nil {
				return fmt.Errorf("ip %s: %w: %s", line, err, out)
			}
		}
		return nil
	}
	const takes = "addr add 10.2.1.10/24 dev br0" // an address of the host is somebody else's, too
	for name, c := range map[string]struct {
		before []string // what was done before
		then   []string // and as the guest is to ask
		asks   bool
	}{
		"before": {[]string{takes}, nil, false},
		"then":   {nil, []string{takes}, true},
	} {
		asks := false
		o := New(Config{
			Guest: "web", NICs: []config.NIC{{MAC: "52:54:00:00:01:0a"}, {MAC: spare}}, Taps: []string{"none", "tap"}, Active: func() int { return 0 }, Bridge: "br0",
			SetLink: func(_ context.Context, _ string, up bool) error {
				if asks = true; up {
					return ip(c.then...)
				}
				return nil
			},
		})
		err := netns.Once(func() error {
			defer o.Close()
			if err := ip(append([]string{
				"link add br0 address " + other + " type bridge", "link set br0 up", "link add tap type veth peer name guest", "link set tap up",
			}, c.before...)...); err != nil {
				return err
			}
			_, err := o.Configure(t.Context(), guest.Configure{MAC: spare, Addrs: []netip.Prefix{netip.MustParsePrefix("10.2.1.10/24")}, GatewayV4: netip.MustParseAddr("10.2.1.1")})
			return err
		})
		inUse := (*InUseError)(nil)
		if !errors.As(err, &inUse) || inUse.Addr != netip.MustParseAddr("10.2.1.10") || inUse.By != other {
			t.Errorf("%s: in use by %+v: %v", name, inUse, err)
		}
		if asks != c.asks || len(o.servers) > 0 {
			t.Errorf("%s: the guest was to ask: %v, and is given the address still by %d", name, asks, len(o.servers))
		}
	}
}

// TestAgentAway: a guest keeps the address that it was given while no agent answers it for most of a day, and asks no
// other server meanwhile, which would refuse it.
func TestAgentAway(t *testing.T) {
	const mac, away = "52:54:00:00:01:0a", 20 * time.Hour
	o := New(Config{NICs: []config.NIC{{MAC: mac}}})
	grant := o.grant(0, netip.MustParsePrefix("10.2.1.10/24"), netip.MustParseAddr("10.2.1.1"))
	asks, err := dhcpv4.New(dhcpv4.WithHwAddr(grant.MAC), dhcpv4.WithMessageType(dhcpv4.MessageTypeRequest), dhcpv4.WithClientIP(net.IP{10, 2, 1, 10}))
	if err != nil {
		t.Fatal(err)
	}
	ack, _ := grant.Answer(asks)
	if ack == nil {
		t.Fatal("it is not answered")
	}
	renew, rebind, ends := ack.IPAddressRenewalTime(0), ack.IPAddressRebindingTime(0), ack.IPAddressLeaseTime(0)
	if renew == 0 || rebind < renew+away || ends < rebind {
		t.Errorf("it asks here after %v, wherever it is after %v, and has lost the address after %v", renew, rebind, ends)
	}
}

// TestLooks: a client that was given an address looks at first whether anybody has it, and would take who claims it for
// its owner.
func TestLooks(t *testing.T) {
	for name, c := range map[string]struct {
		took time.Time
		want bool
	}{
		"it is not to take it yet": {time.Time{}, false},
		"it took it just now":      {time.Now(), true},
		"it took it long ago":      {time.Now().Add(-looksFor), false},
	} {
		if got := looks(c.took); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}
