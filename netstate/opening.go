package netstate

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"github.com/google/nftables/userdata"
	"golang.org/x/sys/unix"
)

// An opening lets the packets of one address that takes a detour pass the host's own
// firewall, one way: to the address or from it, out of a device or in by one. The firewall
// did not see their connections begin, and one that forwards nothing by default, or only
// what it takes for established, would end them.
//
// It is a rule at the head of each chain of others that may drop what the host forwards
// (see firewall), and its comment is all that tells it from theirs.
type opening struct{ to, from, in, out string }

// openingWord begins the comments of those rules.
const openingWord = tableName

func opens(to, from netip.Addr, in, out string) opening {
	return opening{addrWord(to), addrWord(from), in, out}
}

func (o opening) comment() string {
	return words(openingWord, "to", o.to, "from", o.from, "in", o.in, "out", o.out)
}

// readOpening is the inverse of comment.
func readOpening(comment string) (opening, bool) {
	_, m := split(comment)
	o := opening{m["to"], m["from"], m["in"], m["out"]}
	return o, o.addr().IsValid() && o.comment() == comment
}

func (o opening) addr() netip.Addr {
	addr, _ := netip.ParseAddr(o.to + o.from) // one of them is ""
	return addr
}

// exprs are written as iptables-nft writes them, so that it can read its own tables.
func (o opening) exprs(family nftables.TableFamily) []expr.Any {
	match := ipDstInet(o.addr())
	if o.from != "" {
		match = ipSrcInet(o.addr())
	}
	if family != nftables.TableFamilyINet {
		match = match[len(etherType(0)):]
	}
	if o.in != "" {
		match = join(match, iif(o.in))
	}
	if o.out != "" {
		match = join(match, oif(o.out))
	}
	return join(match, accept())
}

func (o opening) ensure(k *kernel) error {
	fw, err := k.firewall()
	if err != nil {
		return wrap(err, "open the firewall for %s", o.addr())
	}
	for _, chain := range fw.lacking(o) {
		err := batch(func(c *nftables.Conn) error {
			c.InsertRule(&nftables.Rule{
				Table: &nftables.Table{Family: chain.family, Name: chain.table}, Chain: &nftables.Chain{Name: chain.name},
				Exprs: o.exprs(chain.family), UserData: userdata.AppendString(nil, userdata.TypeComment, o.comment()),
			})
			return nil
		})
		if errors.Is(err, unix.ENOENT) {
			continue // its owner took it away just now
		}
		if err != nil {
			return fmt.Errorf("open the firewall for %s: %s: %w", o.addr(), chain, err)
		}
	}
	return nil
}

func (o opening) remove(k *kernel) error {
	fw, err := k.firewall()
	if err != nil {
		return wrap(err, "close the firewall for %s", o.addr())
	}
	for _, r := range fw.openings() {
		if r.opening != o {
			continue
		}
		err := batch(func(c *nftables.Conn) error {
			return c.DelRule(&nftables.Rule{
				Table: &nftables.Table{Family: r.chain.family, Name: r.chain.table}, Chain: &nftables.Chain{Name: r.chain.name}, Handle: r.handle,
			})
		})
		if gone(err) != nil {
			return fmt.Errorf("close the firewall for %s: %s: %w", o.addr(), r.chain, err)
		}
	}
	return nil
}

func (o opening) String() string {
	return "opening " + strings.NewReplacer("=", " ").Replace(strings.TrimPrefix(o.comment(), openingWord+" "))
}

// batch makes one transaction of what fill asks for.
func batch(fill func(*nftables.Conn) error) error {
	c, err := openNFT()
	if err != nil {
		return fmt.Errorf("open nftables: %w", err)
	}
	if err := fill(c); err != nil {
		return err
	}
	return c.Flush()
}

// openedAway lists what an address needs whose guest is elsewhere: its packets leave by the
// tunnel, and what comes back goes to the guests' router, or home, also out of a tunnel that another
// has just replaced. While it flips, some go by the bridge still, which shows them to the firewall
// where the kernel has br_netfilter.
func openedAway(bridge string, a Away) []resource {
	back := opens(netip.Addr{}, a.Addr, "", bridge)
	switch {
	case a.Home != "":
		back.out = a.Home
	case !a.Gateway.IsValid(): // the host's own routes decide
		back = opens(netip.Addr{}, a.Addr, a.Tunnel, "")
	}
	return []resource{opens(a.Addr, netip.Addr{}, "", a.Tunnel), opens(a.Addr, netip.Addr{}, bridge, bridge), back}
}

// openedVisiting lists what a visitor's address needs: whatever comes or goes by the bridge.
func openedVisiting(bridge string, v Visiting) []resource {
	list := []resource{opens(v.Addr, netip.Addr{}, "", bridge), opens(netip.Addr{}, v.Addr, bridge, "")}
	if v.Leaves != "" {
		list = append(list, opens(v.Addr, netip.Addr{}, "", v.Leaves))
	}
	return list
}
