package topo

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strings"

	"godwit/netstate/netns"

	"github.com/vishvananda/netlink"
	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"
)

// node is a namespace that we made, and a netlink socket in it.
type node struct {
	name      string // without the lab's prefix
	namespace string
	handle    *netlink.Handle
}

func (n *node) close() {
	if n.handle != nil {
		n.handle.Close()
	}
}

// everywhere holds in all nodes. New namespaces take some of these from the machine.
var everywhere = []string{
	"net.ipv4.conf.all.rp_filter=0", "net.ipv4.conf.default.rp_filter=0", "net.ipv4.conf.lo.rp_filter=0",
	"net.ipv4.conf.all.send_redirects=0", "net.ipv4.conf.default.send_redirects=0",
	"net.ipv4.conf.all.accept_redirects=0", "net.ipv4.conf.default.accept_redirects=0",
	"net.ipv6.conf.all.accept_ra=0", "net.ipv6.conf.default.accept_ra=0",
	"net.ipv6.conf.all.accept_dad=0", "net.ipv6.conf.default.accept_dad=0",
	"net.ipv4.tcp_rmem=4096 131072 16777216", "net.ipv4.tcp_wmem=4096 16384 16777216",
}

// forwarding holds in all nodes that pass packets on. It comes first: the kernel resets
// other settings when it changes.
var forwarding = []string{"net.ipv4.ip_forward=1", "net.ipv6.conf.all.forwarding=1"}

// endpoint holds in clients. Their receive buffers are as docs/guest.md tells clients that download from guests which
// move, as the kernel lets a subflow that joins begin with the second number of tcp_rmem.
var endpoint = []string{
	"net.ipv4.conf.all.rp_filter=2", "net.ipv4.conf.default.rp_filter=2", "net.ipv4.tcp_rmem=4096 4194304 16777216",
}

// common holds in all nodes, as far as kernel and machine allow it. Congestion control
// is the kernel's own default, so that runs can be compared; a machine whose default is
// another may forbid that, see tcp_allowed_congestion_control in ip-sysctl.rst.
var common = []string{
	"net.ipv4.tcp_congestion_control=cubic",
	"net.mptcp.enabled=1", "net.mptcp.add_addr_timeout=1", "net.mptcp.blackhole_timeout=0",
}

// makeNodes makes every node of the spec. Nodes of a failed call are in t.nodes too.
func (t *Topo) makeNodes(ctx context.Context) error {
	for _, name := range t.spec.nodeNames() {
		t.nodes[name] = &node{name: name, namespace: t.spec.namespace(name)}
	}
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(4)
	for _, n := range t.nodes {
		group.Go(func() error {
			if err := ctx.Err(); err != nil {
				return err
			}
			return n.make()
		})
	}
	return group.Wait()
}

func (n *node) make() error {
	if err := netns.Create(n.namespace); err != nil {
		return err
	}
	var err error
	if n.handle, err = netns.Handle(n.namespace); err != nil {
		return err
	}
	w := n.work()
	if strings.HasPrefix(n.name, "c-") {
		w.sysctl(everywhere...)
		w.sysctl(endpoint...)
	} else {
		w.sysctl(forwarding...)
		w.sysctl(everywhere...)
	}
	w.optional(common...)
	w.up("lo")
	return w.err
}

// work changes a node step by step. After the first error it does nothing any more,
// and keeps the error.
type work struct {
	*node
	err error
}

func (n *node) work() *work { return &work{node: n} }

// try runs f, unless something failed before, and names what it did in its error.
func (w *work) try(what string, f func() error) {
	if w.err != nil {
		return
	}
	if err := f(); err != nil {
		w.err = fmt.Errorf("%s in %s: %w", what, w.name, err)
	}
}

// sysctl sets "key=value" pairs.
func (w *work) sysctl(pairs ...string) {
	w.try("set sysctls", func() error {
		return netns.Do(w.namespace, func() error {
			for _, pair := range pairs {
				key, value, _ := strings.Cut(pair, "=")
				if err := netns.Sysctl(key, value); err != nil {
					return err
				}
			}
			return nil
		})
	})
}

// optional sets those pairs that this kernel knows and allows.
func (w *work) optional(pairs ...string) {
	w.try("set sysctls", func() error {
		return netns.Do(w.namespace, func() error {
			for _, pair := range pairs {
				key, value, _ := strings.Cut(pair, "=")
				if err := netns.Sysctl(key, value); err != nil && !errors.Is(err, os.ErrNotExist) && !errors.Is(err, os.ErrPermission) {
					return err
				}
			}
			return nil
		})
	})
}

// device calls f with the device name.
func (w *work) device(what, name string, f func(netlink.Link) error) {
	w.try(what+" "+name, func() error {
		link, err := w.handle.LinkByName(name)
		if err != nil {
			return err
		}
		return f(link)
	})
}

func (w *work) up(name string) { w.device("raise", name, w.handle.LinkSetUp) }

// remove removes a device; one that is not there is as good.
func (w *work) remove(name string) {
	w.try("remove "+name, func() error {
		link, err := w.handle.LinkByName(name)
		if errors.As(err, new(netlink.LinkNotFoundError)) {
			return nil
		}
		if err != nil {
			return err
		}
		return w.handle.LinkDel(link)
	})
}

// address gives a device addresses; invalid ones are left out.
func (w *work) address(name string, addresses ...netip.Prefix) {
	for _, a := range addresses {
		if !a.IsValid() {
			continue
		}
		w.device("add "+a.String()+" to", name, func(link netlink.Link) error {
			return w.handle.AddrAdd(link, &netlink.Addr{IPNet: ipNet(a), Flags: addressFlags(a)})
		})
	}
}

// addressFlags make an IPv6 address usable at once, without asking who else has it.
func addressFlags(a netip.Prefix) int {
	if a.Addr().Is6() {
		return unix.IFA_F_NODAD
	}
	return 0
}

// port makes a device the port of a bridge, both in this node, and raises it.
func (w *work) port(name, bridge string) {
	w.device("make port of "+bridge, name, func(link netlink.Link) error {
		master, err := w.handle.LinkByName(bridge)
		if err != nil {
			return err
		}
		return w.handle.LinkSetMaster(link, master)
	})
	w.up(name)
}
