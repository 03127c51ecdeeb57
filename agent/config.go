package agent

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"

	"github.com/goccy/go-yaml"

	"godwit/agent/peer"
)

// Config is what an agent is told about its host, its site and its neighbours.
type Config struct {
	Host    string      `yaml:"host"` // unique in the fleet
	Site    string      `yaml:"site"`
	State   string      `yaml:"state"` // directory that survives a reboot: journals, guests, history
	Run     string      `yaml:"run"`   // directory of sockets and running guests
	Port    uint16      `yaml:"port,omitempty"`
	TLS     TLSFiles    `yaml:"tls"`
	Network Network     `yaml:"network"`
	Uplinks []Uplink    `yaml:"uplinks"`
	Peers   []Neighbour `yaml:"peers,omitempty"`
	Image   Image       `yaml:"image,omitempty"`
}

// TLSFiles are PEM files: the fleet's CA, this host's certificate and key.
type TLSFiles struct {
	CA   string `yaml:"ca"`
	Cert string `yaml:"cert"`
	Key  string `yaml:"key"`
}

// Network is where guests are attached.
type Network struct {
	Bridge   string       `yaml:"bridge"` // guests' taps are ports of it
	LAN      string       `yaml:"lan"`    // its port towards the site's router
	V4       netip.Prefix `yaml:"v4"`     // the guests' subnet
	V6       netip.Prefix `yaml:"v6"`
	Gateway4 netip.Addr   `yaml:"gateway4"` // its router
	Gateway6 netip.Addr   `yaml:"gateway6"`
	First    uint32       `yaml:"first,omitempty"` // host part of the first address for guests; default 10
	MTU      int          `yaml:"mtu,omitempty"`   // of the guests; default 1500
}

// Uplink is one way to the outside.
type Uplink struct {
	Name    string     `yaml:"name"`
	Device  string     `yaml:"device,omitempty"`
	Address netip.Addr `yaml:"address"`
	Carries string     `yaml:"carries,omitempty"` // guest, migration or both
	Rate    int64      `yaml:"rate,omitempty"`    // bit/s; 0: unknown
}

// Neighbour is another host of the fleet.
type Neighbour struct {
	Host    string       `yaml:"host"`
	Site    string       `yaml:"site"`
	V4      netip.Prefix `yaml:"v4"`
	V6      netip.Prefix `yaml:"v6"`
	Uplinks []Uplink     `yaml:"uplinks"`
}

// Image is what guests of the image `tiny` boot.
type Image struct {
	Kernel  string `yaml:"kernel,omitempty"`
	Initrd  string `yaml:"initrd,omitempty"`
	Cmdline string `yaml:"cmdline,omitempty"`
}

// LoadConfig reads a YAML file; its errors name line and column.
func LoadConfig(path string) (*Config, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read agent configuration: %w", err)
	}
	var c Config
	if err := yaml.UnmarshalWithOptions(data, &c, yaml.Strict()); err != nil {
		return nil, fmt.Errorf("read agent configuration %s: %w", path, err)
	}
	c.fill()
	return &c, c.check(path)
}

func (c *Config) fill() {
	if c.Port == 0 {
		c.Port = peer.DefaultPort
	}
	if c.Network.First == 0 {
		c.Network.First = 10
	}
	if c.Network.MTU == 0 {
		c.Network.MTU = 1500
	}
	for i := range c.Uplinks {
		c.Uplinks[i].fill(i)
	}
	for _, p := range c.Peers {
		for i := range p.Uplinks {
			p.Uplinks[i].fill(i)
		}
	}
}

func (u *Uplink) fill(i int) {
	if u.Carries == "" {
		u.Carries = "migration"
		if i == 0 {
			u.Carries = "both"
		}
	}
}

func (u Uplink) guests() bool     { return u.Carries == "guest" || u.Carries == "both" }
func (u Uplink) migrations() bool { return u.Carries == "migration" || u.Carries == "both" }

func (c *Config) check(path string) error {
	for name, value := range map[string]string{
		"host": c.Host, "site": c.Site, "state": c.State, "run": c.Run,
		"network.bridge": c.Network.Bridge, "network.lan": c.Network.LAN, "tls.ca": c.TLS.CA,
	} {
		if value == "" {
			return fmt.Errorf("agent configuration %s: %s is missing", path, name)
		}
	}
	if len(c.Uplinks) == 0 {
		return fmt.Errorf("agent configuration %s: it names no uplink", path)
	}
	if !c.Network.V4.IsValid() && !c.Network.V6.IsValid() {
		return fmt.Errorf("agent configuration %s: network has neither v4 nor v6", path)
	}
	return nil
}

// find returns the host that a name means: a host, or the only host of a site;
// of a site with several, the first that is not avoid.
func (c *Config) find(name, avoid string) (Neighbour, bool) {
	var bySite *Neighbour
	for i, p := range c.Peers {
		if p.Host == name {
			return p, true
		}
		if p.Site == name && p.Host != avoid && bySite == nil {
			bySite = &c.Peers[i]
		}
	}
	if bySite != nil {
		return *bySite, true
	}
	return Neighbour{}, false
}

// paths pairs every uplink here with every uplink there, the best first: those
// that carry migrations before others, then by rate.
func (c *Config) paths(n Neighbour) []peer.Path {
	var out []peer.Path
	for _, here := range c.Uplinks {
		for _, there := range n.Uplinks {
			out = append(out, peer.Path{
				Name:   here.Name + "-" + there.Name,
				Local:  here.Address,
				Remote: there.Address,
				Rate:   slower(here.Rate, there.Rate),
				Guest:  here.guests() && there.guests(),
				Memory: here.migrations() && there.migrations(),
			})
		}
	}
	sortPaths(out)
	return out
}

// slower of two rates, of which 0 means unknown or unlimited.
func slower(a, b int64) int64 {
	if a == 0 || b != 0 && b < a {
		return b
	}
	return a
}

func (c *Config) dir(parts ...string) string {
	return filepath.Join(append([]string{c.State}, parts...)...)
}
