// Package config is what people write for an agent: the configuration of its host (Config,
// docs/agent.md) and the descriptions of guests (Description, the same page). Both are YAML of one
// document, in which unknown keys are errors and quantities may have a unit; what is wrong is said
// in one line, with file, line and column. It also answers what follows from them alone: which host
// a name means, which pairs of uplinks are paths, whose subnet an address is of.
package config

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"godwit/agent/hook"
	"godwit/agent/nameserver"
	"godwit/agent/peer"
	"godwit/internal/oneline"
	"godwit/migration"
	"godwit/policy"
	"godwit/vm"
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
	Hooks   hook.Config `yaml:"hooks,omitempty"`

	hooksNamed bool // the file says where hooks are

	Images map[string]Image `yaml:"images,omitempty"` // by name, beside the image tiny

	Metrics string `yaml:"metrics,omitempty"` // ADDRESS:PORT where GET /metrics is served over HTTP, to whoever asks; "": nowhere

	SubnetAgent   string             `yaml:"subnet_agent,omitempty"`   // peer that stands for the addresses of guests that left; "": this host itself
	Fence         string             `yaml:"fence,omitempty"`          // executable that proves another host off; see package fence
	DNS           *nameserver.Config `yaml:"dns,omitempty"`            // name server that is told of guests' next addresses; nil: none
	Routes        *Routes            `yaml:"routes,omitempty"`         // where a speaker of BGP finds visiting addresses; nil: nowhere
	MemoryReserve int64              `yaml:"memory_reserve,omitempty"` // bytes that a coming guest must leave free here
	Patience      time.Duration      `yaml:"patience,omitempty"`       // with a copy of memory of which no byte moves
	ThrottleMost  *int               `yaml:"throttle_most,omitempty"`  // percent of the time for which a guest that writes too fast may be made to stand still; 0: none

	Lease time.Duration `yaml:"lease,omitempty"` // of a tunnel for connections of a guest that came here and cannot follow; 0: DefaultLease

	KeepMemory    int64         `yaml:"keep_memory,omitempty"`     // bytes of memory of guests that left, for their return; 0: none
	KeepMemoryFor time.Duration `yaml:"keep_memory_for,omitempty"` // how long; 0: the default
}

const (
	// defaultReserve is what QEMU and the host need beside a guest's memory, bytes.
	defaultReserve = 128 << 20
	// defaultPatience outlives a short cut, and TCP's own pause after one.
	defaultPatience = 20 * time.Second
)

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
	Public4  netip.Prefix `yaml:"public4"` // what clients see in V4's place, address by address, where a 1:1 NAT stands before the site
	Public6  netip.Prefix `yaml:"public6"`
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

// Load reads a YAML file. Its errors are one line, of what the file says wrongly with line and column, of what it lacks
// without.
func Load(path string) (*Config, error) {
	c := Config{MemoryReserve: defaultReserve, Patience: defaultPatience, Lease: DefaultLease} // of these 0 is no default: it is what somebody wrote
	root, err := readYAML(path, &c, map[string]quantity{"rate": aRate, "memory_reserve": aSize, "keep_memory": aSize})
	if err != nil {
		return nil, fmt.Errorf("read agent configuration: %w", err)
	}
	c.fill()
	if c.hooksNamed = c.Hooks.Dir != ""; !c.hooksNamed {
		whole, err := filepath.Abs(path) // hooks run elsewhere
		if err != nil {
			return nil, fmt.Errorf("read agent configuration: %w", err)
		}
		c.Hooks.Dir = filepath.Join(filepath.Dir(whole), "hooks.d")
	}
	if err := c.check(); err != nil {
		return nil, fmt.Errorf("read agent configuration: %s%s: %s", path, placeOf(root, err), oneline.Of(err.Error()))
	}
	return &c, nil
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

// isAddrPort says whether something can listen on s and be found there.
func isAddrPort(s string) bool {
	at, err := netip.ParseAddrPort(s)
	return err == nil && at.Port() != 0
}

// checkBounds is check for what has bounds.
func (c *Config) checkBounds() error {
	switch {
	case c.MemoryReserve < 0:
		return fmt.Errorf("memory_reserve of %d bytes; it must not be negative", c.MemoryReserve)
	case c.Metrics != "" && !isAddrPort(c.Metrics):
		return fmt.Errorf("metrics %q: it must be an address and a port, such as 192.0.2.10:9470", c.Metrics)
	case c.Fence != "" && !filepath.IsAbs(c.Fence):
		return fmt.Errorf("fence %s: it must be an absolute path", c.Fence)
	case c.Hooks.Dir != "" && !filepath.IsAbs(c.Hooks.Dir):
		return fmt.Errorf("hooks.dir %s: it must be an absolute path", c.Hooks.Dir)
	case c.Lease < time.Second || c.Lease > MostLease:
		return fmt.Errorf("lease of %v; 1s to %v", c.Lease, MostLease)
	case c.KeepMemory < 0:
		return fmt.Errorf("keep_memory of %d bytes; it must not be negative", c.KeepMemory)
	case c.KeepMemoryFor < 0:
		return fmt.Errorf("keep_memory_for of %v; it must not be negative", c.KeepMemoryFor)
	case c.Patience < time.Second:
		return fmt.Errorf("patience of %v; at least 1s", c.Patience)
	case c.ThrottleMost != nil && (*c.ThrottleMost < 0 || *c.ThrottleMost > 99):
		return fmt.Errorf("throttle_most of %d; percent, 0 to 99", *c.ThrottleMost)
	}
	return nil
}

// check says what is missing or cannot be meant; the first such thing, in the
// order of the documentation.
func (c *Config) check() error {
	for _, key := range []struct{ name, value string }{
		{"host", c.Host}, {"site", c.Site}, {"state", c.State}, {"run", c.Run},
		{"tls.ca", c.TLS.CA}, {"tls.cert", c.TLS.Cert}, {"tls.key", c.TLS.Key},
		{"network.bridge", c.Network.Bridge}, {"network.lan", c.Network.LAN},
	} {
		if key.value == "" {
			return fmt.Errorf("%s is missing", key.name)
		}
	}
	if err := cmp.Or(c.checkNames(), c.checkDirs()); err != nil {
		return err
	}
	if err := c.Network.check(); err != nil {
		return err
	}
	if err := c.checkBounds(); err != nil {
		return err
	}
	if c.DNS != nil {
		if err := c.DNS.Check(); err != nil {
			return fmt.Errorf("dns: %w", err)
		}
	}
	if c.Routes != nil {
		if err := c.Routes.check(); err != nil {
			return fmt.Errorf("routes: %w", err)
		}
	}
	if len(c.Uplinks) == 0 {
		return errors.New("it names no uplink")
	}
	if err := cmp.Or(checkUplinks("uplinks", c.Uplinks), checkOwnAddresses(c.Uplinks)); err != nil {
		return err
	}
	if err := c.Hooks.Check(); err != nil {
		return err
	}
	if err := c.checkPeers(); err != nil {
		return err
	}
	return c.checkSubnetAgent()
}

// checkSubnetAgent says why the host that is named cannot stand for this one's addresses.
func (c *Config) checkSubnetAgent() error {
	if c.SubnetAgent == "" {
		return nil
	}
	p, ok := c.Peer(c.SubnetAgent)
	switch {
	case !ok:
		return fmt.Errorf("subnet_agent %s: no host of peers has that name", c.SubnetAgent)
	case p.Site != c.Site:
		return fmt.Errorf("subnet_agent %s: it is of site %s, and not of %s", c.SubnetAgent, p.Site, c.Site)
	}
	return nil
}

// Peer is the neighbour of exactly that name, as files, plans and certificates name it; false: there is none.
func (c *Config) Peer(host string) (Neighbour, bool) {
	for _, p := range c.Peers {
		if p.Host == host {
			return p, true
		}
	}
	return Neighbour{}, false
}

// checkUplinks checks the uplinks of one host.
func checkUplinks(where string, all []Uplink) error {
	names := map[string]bool{}
	for i, u := range all {
		switch {
		case u.Name == "":
			return fmt.Errorf("%s[%d]: its name is missing", where, i)
		case names[u.Name]:
			return fmt.Errorf("%s[%d]: name %s is used twice", where, i, u.Name)
		case !u.Address.IsValid():
			return fmt.Errorf("%s[%d] %s: its address is missing", where, i, u.Name)
		case !slices.Contains(carries, u.Carries):
			return fmt.Errorf("%s[%d] %s: carries %q is unknown; allowed: %s", where, i, u.Name, u.Carries, strings.Join(carries, ", "))
		case u.Rate < 0:
			return fmt.Errorf("%s[%d] %s: rate of %d bit/s; it must not be negative", where, i, u.Name, u.Rate)
		}
		names[u.Name] = true
	}
	return nil
}

// checkOwnAddresses refuses two uplinks of one address, at which the agent cannot listen twice: what is another way has
// an address of its own.
func checkOwnAddresses(all []Uplink) error {
	names := map[netip.Addr]string{}
	for i, u := range all {
		at := u.Address.Unmap()
		if other, taken := names[at]; taken {
			return fmt.Errorf("uplinks[%d] %s: address %s is that of uplink %s", i, u.Name, u.Address, other)
		}
		names[at] = u.Name
	}
	return nil
}

// carries are what an uplink may be for.
var carries = []string{"guest", "migration", "both"}

// Find returns the other host that a name means which a person gave: a host, or the first of a site. What else names a
// host means no other of a site that is called as it was: see Peer. False: nobody here knows such a one.
func (c *Config) Find(name string) (Neighbour, bool) {
	i := slices.IndexFunc(c.Peers, func(p Neighbour) bool { return p.Host == name })
	if i < 0 {
		i = slices.IndexFunc(c.Peers, func(p Neighbour) bool { return p.Site == name })
	}
	if i < 0 {
		return Neighbour{}, false
	}
	return c.Peers[i], true
}

// Paths pairs every uplink here with every uplink there, the best first: those
// that carry migrations before others, then by rate.
func (c *Config) Paths(n Neighbour) []peer.Path {
	out := c.pairs(n)
	sortPaths(out)
	return out
}

// pairs are those of the uplinks here and there between which packets can go, in the configuration's order.
func (c *Config) pairs(n Neighbour) []peer.Path {
	var out []peer.Path
	name := namesOfPaths(c.Uplinks, n.Uplinks)
	for _, here := range c.Uplinks {
		for _, there := range n.Uplinks {
			if here.Address.Unmap().Is4() != there.Address.Unmap().Is4() {
				continue // nothing gets from one to the other
			}
			out = append(out, peer.Path{
				Name:   name(here, there),
				Local:  here.Address,
				Remote: there.Address,
				Rate:   slower(here.Rate, there.Rate),
				Guest:  here.guests() && there.guests(),
				Memory: here.migrations() && there.migrations(),

				Shared:    here.guests() || there.guests(),
				LocalRate: here.Rate, RemoteRate: there.Rate,
			})
		}
	}
	return out
}

// slower of two rates, bit/s, of which 0 means unknown or unlimited.
func slower(a, b int64) int64 {
	if a == 0 || b != 0 && b < a {
		return b
	}
	return a
}

// StatePath is the path of parts below the directory that survives a reboot.
func (c *Config) StatePath(parts ...string) string {
	return filepath.Join(append([]string{c.State}, parts...)...)
}

// Socket is the path of the API of the agent that runs by config.
func (c *Config) Socket() string { return filepath.Join(c.Run, "agent.sock") }

// DefaultLease is how long a tunnel lives on for connections that cannot follow, where the
// configuration says nothing else.
const DefaultLease = 10 * time.Minute

// MostLease bounds leases, those that other hosts ask for too.
const MostLease = 30 * 24 * time.Hour

// LeaseTime is how long such a tunnel lives on here.
func (c *Config) LeaseTime() time.Duration { return cmp.Or(c.Lease, DefaultLease) }

// MostThrottle is how far p's guest may be throttled, percent; 0: not at all.
func (c *Config) MostThrottle(p migration.Plan) int {
	if p.Mode != "precopy" || p.Throttle == 0 {
		return 0
	}
	highest := p.Throttle
	if c.ThrottleMost != nil {
		highest = min(highest, *c.ThrottleMost)
	}
	return policy.MostThrottle(p.Downtime, vm.ThrottleRuns, highest)
}

// defaultKeepMemoryFor is how long memory is kept.
const defaultKeepMemoryFor = 24 * time.Hour

// MemoryKeptFor is for how long memory of guests that left is kept.
func (c *Config) MemoryKeptFor() time.Duration {
	return cmp.Or(c.KeepMemoryFor, defaultKeepMemoryFor)
}

// MemoryKey is the file with the key of the memory that is kept, in the runtime directory: in memory on
// most hosts.
func (c *Config) MemoryKey() string { return filepath.Join(c.Run, "memory.key") }
