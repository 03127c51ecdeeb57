// Package topo builds the network of a lab: sites, hosts, clients and the internet
// between them, as network namespaces of one machine.
//
// Every node is a namespace gw<ID>-<node>: core is the internet; r-SITE a site's
// router; h-HOST a host; c-CLIENT a client, behind nat-CLIENT if it has one. Uplinks
// are links of package wan between a router and the core; all else is veth pairs and
// bridges. Addresses are in plan.go.
package topo

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"sync"

	"godwit/lab/wan"

	"golang.org/x/sync/errgroup"
)

// Internet is the place of a client that hangs on the core.
const Internet = "internet"

// Spec says what to build. ID is four hexadecimal digits that no other lab of this
// machine has.
type Spec struct {
	ID      string
	Sites   []Site
	Clients []Client
	MTU     int // of the guests' and the access networks, bytes; 0 is 1500
}

// Site is a network location.
type Site struct {
	Name    string
	GuestV4 netip.Prefix // the guests' subnet; the router has its first address
	GuestV6 netip.Prefix // may be missing
	VLAN    string       // how that is a VLAN, PortInVLAN or BridgeFilters; "": it is none
	OneNIC  bool         // its hosts have no other than the port of the guests' bridge, which has their own address
	Hosts   int          // 0 is 1
	Uplinks []Uplink
}

// Uplink is a site's way to the internet. a of its link is the site, b the core.
type Uplink struct {
	Name    string
	Carries string // guest, migration, both
	Link    wan.Link
}

// Client is an endpoint outside the hosts.
type Client struct {
	Name, At        string // At is a site's name or Internet
	NAT             bool
	Uplinks         int    // addresses; 0 is 1
	MPTCP           string // full, backup, single, off
	AddAddrAccepted int    // announced addresses that its sockets accept
}

// Host is what a built host has.
type Host struct {
	Name, Site, Namespace string
	Bridge                string // guests' taps are its ports
	LAN                   string // its port towards the site
	Uplinks               []HostUplink
	GuestV4, GuestV6      netip.Prefix
	GatewayV4, GatewayV6  netip.Addr // of guests
}

// HostUplink is a host's share of an uplink: an own device and address on it.
type HostUplink struct {
	Name, Device, Carries string
	V4, V6                netip.Addr
	GatewayV4, GatewayV6  netip.Addr
	Rate                  int64 // bit/s of the site's link when it was built; 0 is unlimited
}

// ClientNet is where a client is now.
type ClientNet struct {
	Namespace string
	At        string
	Addrs     []netip.Addr // its own IPv4 addresses, one per uplink: private behind NAT
	AddrsV6   []netip.Addr
	Public    []netip.Addr // the IPv4 addresses that others see
}

// Edge names the devices that a site's packets from and to its hosts' guests pass.
type Edge struct {
	Namespace string
	Devices   []string // one per host, in the hosts' order
}

// Topo is a built network.
type Topo struct {
	spec  Spec
	nodes map[string]*node // by name of the node; fixed after Build
	hosts []Host

	mu      sync.Mutex
	links   map[string]*link // by "site/uplink"
	clients map[string]*client
	octets  map[string]int // last host number given per access network
	closing sync.Once
	closed  error
}

// Build makes all of spec. On failure, or when ctx ends first, nothing remains. On
// success the caller closes it.
func Build(ctx context.Context, spec Spec) (*Topo, error) {
	spec = spec.defaults()
	if err := spec.Check(); err != nil {
		return nil, err
	}
	t := &Topo{
		spec:    spec,
		nodes:   map[string]*node{},
		links:   map[string]*link{},
		clients: map[string]*client{},
		octets:  map[string]int{},
	}
	if err := t.build(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("build network %s: %w", spec.ID, err), t.Close())
	}
	return t, nil
}

// build makes nodes, then links, then what is between them; each stage in parallel.
func (t *Topo) build(ctx context.Context) error {
	if err := t.makeNodes(ctx); err != nil {
		return err
	}
	if err := t.startLinks(ctx); err != nil {
		return err
	}
	sites, within := errgroup.WithContext(ctx)
	sites.Go(t.routeCore)
	for i := range t.spec.Sites {
		sites.Go(func() error { return t.wireSite(within, i) })
	}
	if err := sites.Wait(); err != nil {
		return err
	}
	clients, within := errgroup.WithContext(ctx)
	for k := range t.spec.Clients {
		clients.Go(func() error { return t.wireClient(within, k) })
	}
	if err := clients.Wait(); err != nil {
		return err
	}
	for i := range t.spec.Sites {
		t.hosts = append(t.hosts, t.spec.hosts(i)...)
	}
	return settleAll(ctx, slices.Collect(maps.Values(t.nodes))...)
}

// Hosts returns all hosts in the order of the spec.
func (t *Topo) Hosts() []Host { return t.hosts }

// EdgeDevices returns, by site, where to count the packets between the site's network
// and its guests: each passes exactly one of the devices.
func (t *Topo) EdgeDevices() map[string]Edge {
	edges := map[string]Edge{}
	for _, site := range t.spec.Sites {
		edge := Edge{Namespace: t.spec.namespace(routerNode(site.Name))}
		for h := 1; h <= site.Hosts; h++ {
			edge.Devices = append(edge.Devices, lanPort(h))
		}
		edges[site.Name] = edge
	}
	return edges
}

// Close takes the network away with every process that still runs in it, and returns
// when all of it is gone. The second call does nothing and returns the same.
func (t *Topo) Close() error {
	t.closing.Do(func() {
		var group errgroup.Group
		var mu sync.Mutex
		var errs []error
		t.mu.Lock()
		for _, l := range t.links {
			group.Go(func() error {
				err := l.emulator.Close()
				mu.Lock()
				errs = append(errs, err)
				mu.Unlock()
				return nil
			})
		}
		t.mu.Unlock()
		_ = group.Wait()
		for _, n := range t.nodes {
			n.close()
		}
		errs = append(errs, Remove(t.spec.ID))
		t.closed = errors.Join(errs...)
	})
	return t.closed
}
