package topo

import (
	"fmt"
	"os"

	"godwit/netstate/dump"
	"godwit/netstate/netns"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// wireNAT makes what stays in a client's NAT wherever it is: masquerading of what
// leaves by an outside device, and a table per uplink.
func (t *Topo) wireNAT(c *client) error {
	w := t.nodes[natNode(c.spec.Name)].work()
	w.localFirst()
	for j := range c.spec.Uplinks {
		w.deviceRule(insideDevice(j), upTable(j))
	}
	w.try("masquerade", func() error { return masquerade(w.namespace, c.spec.Uplinks) })
	return w.err
}

// masquerade adds the rules to the namespace.
func masquerade(namespace string, uplinks int) error {
	file, err := os.Open(netns.Path(namespace))
	if err != nil {
		return err
	}
	defer file.Close()
	conn, err := nftables.New(nftables.WithNetNSFd(int(file.Fd())))
	if err != nil {
		return fmt.Errorf("open nftables: %w", err)
	}
	table := conn.AddTable(&nftables.Table{Name: "godwit-nat", Family: nftables.TableFamilyINet})
	chain := conn.AddChain(&nftables.Chain{
		Name: "out", Table: table, Type: nftables.ChainTypeNAT,
		Hooknum: nftables.ChainHookPostrouting, Priority: nftables.ChainPriorityNATSource,
	})
	for j := range uplinks {
		name := make([]byte, unix.IFNAMSIZ)
		copy(name, outsideDevice(j))
		conn.AddRule(&nftables.Rule{Table: table, Chain: chain, Exprs: []expr.Any{
			&expr.Meta{Key: expr.MetaKeyOIFNAME, Register: 1},
			&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: name},
			&expr.Masq{},
		}})
	}
	if err := conn.Flush(); err != nil {
		return fmt.Errorf("add nftables rules: %w", err)
	}
	return nil
}

// plugInside connects uplink j of a client with its NAT, on an address it never had, unless it returns.
func (t *Topo) plugInside(c *client, j int) error {
	number, err := t.number(c, j, fmt.Sprintf("private %d %d", c.k, j), 2, true)
	if err != nil {
		return err
	}
	v4, v6 := privateNet(c.k, j, number)
	gw4, gw6 := privateNet(c.k, j, 1)
	w := t.nodes[natNode(c.spec.Name)].work()
	w.veth(insideDevice(j), t.node(c), ownDevice(j), t.spec.lanMTU())
	w.up(insideDevice(j))
	w.address(insideDevice(j), gw4, gw6)
	if w.err != nil {
		return w.err
	}
	w = t.node(c).work()
	w.leg(ownDevice(j), j, v4, v6, gw4.Addr(), gw6.Addr())
	c.addrs, c.addrsV6 = append(c.addrs, v4.Addr()), append(c.addrsV6, v6.Addr())
	return w.err
}

// forgetSources removes the policy rules for what comes from own addresses.
func (w *work) forgetSources() {
	for _, family := range []int{netlink.FAMILY_V4, netlink.FAMILY_V6} {
		w.try("remove rules", func() error {
			rules, err := dump.Whole(func() ([]netlink.Rule, error) { return w.handle.RuleList(family) })
			if err != nil {
				return err
			}
			for _, rule := range rules {
				if rule.Src == nil {
					continue
				}
				if err := w.handle.RuleDel(&rule); err != nil {
					return err
				}
			}
			return nil
		})
	}
}
