package agent

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"path/filepath"

	"godwit/agent/peer"
	"godwit/netstate"
)

// checkDirs refuses directories that depend on where a program was started: the agent would
// make them in one place, and commands look for its socket in another.
func (c *Config) checkDirs() error {
	for _, dir := range []struct{ name, path string }{{"state", c.State}, {"run", c.Run}} {
		if !filepath.IsAbs(dir.path) {
			return fmt.Errorf("%s %s: it must be an absolute path", dir.name, dir.path)
		}
	}
	return nil
}

// check says what cannot be meant of the guests' network.
func (n Network) check() error {
	if !n.V4.IsValid() && !n.V6.IsValid() {
		return errors.New("network has neither v4 nor v6")
	}
	for _, f := range []struct {
		name             string
		is4              bool
		subnet, public   netip.Prefix
		gateway          netip.Addr
		gatewayLinkLocal bool // may be meant: routers of IPv6 have such addresses
	}{
		{"4", true, n.V4, n.Public4, n.Gateway4, false},
		{"6", false, n.V6, n.Public6, n.Gateway6, true},
	} {
		if err := checkSubnet("network.v"+f.name, f.subnet, f.is4); err != nil {
			return err
		}
		if f.public.IsValid() && (!f.subnet.IsValid() || f.is4 != f.public.Addr().Is4() || f.subnet.Bits() != f.public.Bits()) {
			return fmt.Errorf("network.public%s %s: must be as large as the guests' subnet, and of its family", f.name, f.public)
		}
		switch gateway := f.gateway; {
		case !gateway.IsValid(), f.gatewayLinkLocal && gateway.Is6() && gateway.IsLinkLocalUnicast():
		case gateway.Is4() != f.is4:
			return fmt.Errorf("network.gateway%s %s: it must be an address of IPv%s", f.name, gateway, f.name)
		case f.subnet.IsValid() && !f.subnet.Contains(gateway):
			return fmt.Errorf("network.gateway%s %s: not in the guests' subnet %s, so no guest reaches it", f.name, gateway, f.subnet)
		}
	}
	return nil
}

// checkCertificate refuses another host's: whoever is called would believe it to be that host, and
// whoever calls would not believe this one.
func (c *Config) checkCertificate(id *peer.Identity) error {
	if name := id.Host(); name != c.Host {
		return fmt.Errorf("tls.cert %s is host %q's, and this configuration is for host %s; give it the certificate of %s", c.TLS.Cert, name, c.Host, c.Host)
	}
	return nil
}

// checkSubnet refuses what names a host, or is of the other family.
func checkSubnet(name string, subnet netip.Prefix, is4 bool) error {
	switch {
	case !subnet.IsValid():
		return nil
	case subnet.Addr().Is4() != is4:
		return fmt.Errorf("%s %s: it is of the other family of addresses", name, subnet)
	case subnet != subnet.Masked():
		return fmt.Errorf("%s %s: not the start of its subnet, which is %s", name, subnet, subnet.Masked())
	}
	return nil
}

// Missing says what of the guests' network this host has not got, a line each. It is no error of
// the file: a host that boots may make its bridge after its agent has started.
func (n Network) Missing() []string {
	var out []string
	for _, device := range []struct{ key, name string }{{"network.bridge", n.Bridge}, {"network.lan", n.LAN}} {
		if _, err := net.InterfaceByName(device.name); err != nil {
			out = append(out, fmt.Sprintf("%s %s: no such device", device.key, device.name))
		}
	}
	if len(out) > 0 {
		return out
	}
	switch master, err := netstate.BridgeOf(n.LAN); {
	case err != nil:
		out = append(out, "network.lan: "+err.Error())
	case master == "":
		out = append(out, fmt.Sprintf("network.lan %s: it is a port of no bridge, and must be one of %s", n.LAN, n.Bridge))
	case master != n.Bridge:
		out = append(out, fmt.Sprintf("network.lan %s: it is a port of %s, and must be one of %s", n.LAN, master, n.Bridge))
	}
	return out
}
