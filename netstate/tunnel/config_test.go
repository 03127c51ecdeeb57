package tunnel

import (
	"net/netip"
	"testing"
	"time"

	"golang.zx2c4.com/wireguard/wgctrl/wgtypes"
)

func TestBadConfig(t *testing.T) {
	good := ends(t, WireGuard, "10.9.1.2:1", "10.9.2.2:1")[0]
	for name, c := range map[string]func(*Config){
		"no name": func(c *Config) { c.Name = "" }, "kind": func(c *Config) { c.Kind = "geneve" },
		"families": func(c *Config) { c.Remote = netip.MustParseAddrPort("[::1]:1") }, "no key": func(c *Config) { c.PeerKey = wgtypes.Key{} },
		"lease passed": func(c *Config) { c.Lease = time.Now().Add(-time.Second) }, "mtu": func(c *Config) { c.MTU = 100 },
		"no port": func(c *Config) { c.Local = netip.MustParseAddrPort("10.9.1.2:0") },
	} {
		bad := good
		c(&bad)
		if err := bad.complete(time.Now()); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}
