package tunnel

import (
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"net"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.zx2c4.com/wireguard/wgctrl/wgtypes"
)

// Alias begins the alias of every device that this package makes.
const Alias = "godwit tunnel"

// Kinds of tunnel.
const (
	Auto      = "auto" // WireGuard
	WireGuard = "wireguard"
	VXLAN     = "vxlan"
	GRE       = "gre"  // with a key
	IPIP      = "ipip" // one between two addresses
)

// Kinds are all that Config.Kind takes.
var Kinds = []string{Auto, WireGuard, VXLAN, GRE, IPIP}

// Config is one end of a tunnel.
type Config struct {
	Name       string         `json:"name"` // of the device, and of the files in Dir
	Kind       string         `json:"kind"`
	Local      netip.AddrPort `json:"local"`  // outer; a UDP port of its own for wireguard, a mere number for gre and ipip
	Remote     netip.AddrPort `json:"remote"` // outer; for vxlan both ports are the same
	MTU        int            `json:"mtu"`    // inner; the guest's, 0: 1500
	PrivateKey wgtypes.Key    `json:"private_key"`
	PeerKey    wgtypes.Key    `json:"peer_key"`
	Mark       int            `json:"mark,omitempty"` // SO_MARK of outer packets
	Dir        string         `json:"dir"`            // runtime directory, one per host
	Lease      time.Time      `json:"lease"`          // the tunnel ends by itself then
	Inner      netip.Addr     `json:"inner"`          // zero: derived
	PeerInner  netip.Addr     `json:"peer_inner"`     // zero: derived
}

// Status is what a tunnel says of itself.
type Status struct {
	Name      string         `json:"name"`
	Kind      string         `json:"kind"`
	Kernel    bool           `json:"kernel"` // the kernel carries the packets
	Alive     bool           `json:"alive"`  // its process answers
	PID       int            `json:"pid"`
	Local     netip.AddrPort `json:"local"`
	Remote    netip.AddrPort `json:"remote"`
	Inner     netip.Addr     `json:"inner"`
	PeerInner netip.Addr     `json:"peer_inner"`
	MTU       int            `json:"mtu"`
	Lease     time.Time      `json:"lease"`
	PeerKey   string         `json:"peer_key,omitempty"`
	RxBytes   uint64         `json:"rx_bytes"` // inner
	TxBytes   uint64         `json:"tx_bytes"` // inner
}

// complete fills defaults in and says what makes the configuration unusable.
func (c *Config) complete(now time.Time) error {
	if c.Kind == "" || c.Kind == Auto {
		c.Kind = WireGuard
	}
	if c.MTU == 0 {
		c.MTU = 1500
	}
	switch {
	case c.Name == "" || len(c.Name) > 15 || strings.ContainsAny(c.Name, " /:.\t\n"):
		return fmt.Errorf("name %q: not a device name", c.Name)
	case !slices.Contains(Kinds, c.Kind):
		return fmt.Errorf("kind %q: want one of %s", c.Kind, strings.Join(Kinds, ", "))
	case !c.Local.IsValid() || !c.Remote.IsValid() || c.Local.Port() == 0 || c.Remote.Port() == 0:
		return fmt.Errorf("ends %s and %s: both need address and port", c.Local, c.Remote)
	case c.Local.Addr().Is4() != c.Remote.Addr().Is4():
		return fmt.Errorf("ends %s and %s: of different families", c.Local, c.Remote)
	case c.Kind == VXLAN && c.Local.Port() != c.Remote.Port():
		return fmt.Errorf("ports %d and %d: vxlan needs the same at both ends", c.Local.Port(), c.Remote.Port())
	case c.Kind == WireGuard && (c.PrivateKey == wgtypes.Key{} || c.PeerKey == wgtypes.Key{}):
		return fmt.Errorf("keys: wireguard needs a private key and the peer's")
	case !c.Lease.After(now):
		return fmt.Errorf("lease %s: has passed", c.Lease.Format(time.RFC3339))
	case c.MTU < leastMTU || c.MTU > mostMTU:
		return fmt.Errorf("mtu %d: want %d to %d", c.MTU, leastMTU, mostMTU)
	case len(c.socket()) > 107:
		return fmt.Errorf("directory %s: too long for a unix socket", c.Dir)
	}
	if !c.Inner.IsValid() || !c.PeerInner.IsValid() {
		c.Inner, c.PeerInner = InnerAddrs(c.Local, c.Remote)
	}
	return nil
}

func (c Config) socket() string     { return filepath.Join(c.Dir, c.Name+".sock") }
func (c Config) record() string     { return filepath.Join(c.Dir, c.Name+".json") }
func (c Config) halfRecord() string { return c.record() + ".new" } // while it is written
func (c Config) log() string        { return filepath.Join(c.Dir, c.Name+".log") }
func (c Config) alias() string      { return Alias + " to " + c.Remote.String() } // of its device

// Bounds of a tunnel's MTU, bytes: those of guests.
const (
	leastMTU = 576   // what every host takes whole (RFC 791 §3.1); with less than 1280 the kernel has no IPv6 there
	mostMTU  = 65000 // with the headers of any kind it is one datagram
)

// AlwaysWhole, bytes, goes in one piece: it is what is left of 1280, the least that a path has (RFC 8200 §5), beside 80 of
// WireGuard.
const AlwaysWhole = 1200

// InnerAddrs derives the link-local addresses of both ends from the outer pair:
// the other end computes the same, swapped. None is of 169.254.169.0/24, where clouds have what their
// guests are told by (metadata, names, time).
func InnerAddrs(local, remote netip.AddrPort) (own, peer netip.Addr) {
	const clouds, instead = 169, 254
	h := pair(local, remote)
	own4 := [4]byte{169, 254, byte(1 + h>>8%253), byte(h) &^ 1}
	if own4[2] == clouds {
		own4[2] = instead
	}
	peer4 := own4
	if local.Compare(remote) > 0 {
		own4[3]++
	} else {
		peer4[3]++
	}
	return netip.AddrFrom4(own4), netip.AddrFrom4(peer4)
}

// pair hashes the two ends in an order of their own.
func pair(a, b netip.AddrPort) uint64 {
	if a.Compare(b) > 0 {
		a, b = b, a
	}
	h := fnv.New64a()
	h.Write([]byte(a.String() + " " + b.String()))
	return h.Sum64()
}

// linkNames derives for vxlan what WireGuard does not need: the network number,
// the MAC of each end, and the far end's IPv6 link-local address.
func (c Config) linkNames() (vni int, own, peer net.HardwareAddr, peer6 netip.Addr) {
	h := pair(c.Local, c.Remote)
	first := net.HardwareAddr{0x02, 0x67, 0, 0, 0, 0}
	binary.BigEndian.PutUint32(first[2:], uint32(h)&^1)
	second := append(net.HardwareAddr(nil), first...)
	second[5]++
	own, peer = first, second
	if c.Local.Compare(c.Remote) > 0 {
		own, peer = second, first
	}
	a6 := [16]byte{0xfe, 0x80, 8: 0x02, 9: 0x67}
	copy(a6[12:], peer[2:])
	return int(h>>32&0xffffff) | 1, own, peer, netip.AddrFrom16(a6)
}
