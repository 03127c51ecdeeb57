package netstate

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"github.com/google/nftables/userdata"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// An asking is what the host says for whom it asks, by ARP, who has an address of the guests' subnet.
// The bridge needs no address there, and the kernel then names one of another device. Routers that answer
// their own subnet alone (Linux with arp_ignore 2, many others) keep silent, and nothing that comes out of
// the tunnel finds them. A question with the sender 0.0.0.0, a probe (RFC 5227 §1.1), is answered
// by whoever has the address, and changes nobody's cache.
//
// Each is a rule of the table "arp godwit", known by its comment; the table goes with the last.
type asking struct {
	bridge string
	of     netip.Prefix // what is asked for; IPv4
	as     netip.Addr   // the sender
}

// asks lists what finding a gateway needs. IPv6 asks from the link-local address of the bridge.
func asks(bridge string, gateway netip.Addr) []resource {
	if !gateway.Is4() {
		return hears(bridge, host(gateway))
	}
	return []resource{asking{bridge, host(gateway), netip.IPv4Unspecified()}}
}

// asksNeighbours lists what finding others of a guest's subnet needs: they are asked in its name, for which
// the host answers meanwhile. One that has just booted takes a probe of another for a claim of its address (RFC 5227
// §2.1.1), and who answers for one that is away, as this host does, answers none.
func asksNeighbours(bridge string, a Away) []resource {
	if !a.Addr.Is4() || len(wayToSubnet(bridge, a)) == 0 {
		return nil
	}
	return []resource{asking{bridge, a.Subnet.Masked(), a.Addr}}
}

const (
	askingWord  = "asks"
	chainAsking = "asking"
	arpOutput   = 1 // NF_ARP_OUT of linux/netfilter_arp.h
)

func askingTable() *nftables.Table {
	return &nftables.Table{Family: nftables.TableFamilyARP, Name: tableName}
}

func (a asking) comment() string {
	return words(askingWord, "bridge", a.bridge, "of", a.of.String(), "as", a.as.String())
}

// readAsking is the inverse of comment.
func readAsking(comment string) (asking, bool) {
	_, m := split(comment)
	of, err := netip.ParsePrefix(m["of"])
	as, err2 := netip.ParseAddr(m["as"])
	a := asking{m["bridge"], of, as}
	return a, err == nil && err2 == nil && a.comment() == comment
}

func (a asking) String() string { return "asking " + strings.TrimPrefix(a.comment(), askingWord+" ") }

func (a asking) exprs() []expr.Any {
	mask := make([]byte, 4)
	for i := range a.of.Bits() {
		mask[i/8] |= 0x80 >> (i % 8)
	}
	return join(oif(a.bridge), []expr.Any{
		load(expr.PayloadBaseNetworkHeader, 6, 2), equals([]byte{0, 1}),
		load(expr.PayloadBaseNetworkHeader, 24, 4),
		&expr.Bitwise{SourceRegister: 1, DestRegister: 1, Len: 4, Mask: mask, Xor: make([]byte, 4)}, equals(a.of.Masked().Addr().AsSlice()),
		&expr.Immediate{Register: 1, Data: a.as.AsSlice()},
		&expr.Payload{OperationType: expr.PayloadWrite, SourceRegister: 1, Base: expr.PayloadBaseNetworkHeader, Offset: 14, Len: 4},
	}, accept())
}

// arpless says that this kernel has no nftables for ARP, and asks as it does.
var arpless atomic.Bool

// needless says that the bridge has an address from which the kernel asks anyway, or that there is no other way.
func (a asking) needless() bool {
	if arpless.Load() {
		return true
	}
	own := func(o net.Addr) bool {
		n, ok := o.(*net.IPNet)
		return ok && n.Contains(a.of.Addr().AsSlice())
	}
	ifi, err := net.InterfaceByName(a.bridge)
	if err != nil {
		return false
	}
	addrs, err := ifi.Addrs()
	return err == nil && slices.ContainsFunc(addrs, own)
}

func (a asking) ensure(*kernel) error {
	rules, err := askingRules()
	if _, there := rules[a]; err != nil || there || a.needless() {
		return wrap(err, "ask for %s at %s", a.of, a.bridge)
	}
	err = batch(func(c *nftables.Conn) error {
		chain := &nftables.Chain{Table: askingTable(), Name: chainAsking, Type: nftables.ChainTypeFilter,
			Hooknum: nftables.ChainHookRef(arpOutput), Priority: nftables.ChainPriorityFilter}
		if len(rules) == 0 { // or it waits, see page.write; a flip only adds
			c.AddTable(chain.Table)
			c.AddChain(chain)
		}
		r := &nftables.Rule{Table: chain.Table, Chain: chain, Exprs: a.exprs(), UserData: userdata.AppendString(nil, userdata.TypeComment, a.comment())}
		if a.of.IsSingleIP() { // a router is one of its subnet, too
			c.InsertRule(r)
		} else {
			c.AddRule(r)
		}
		return nil
	})
	if errors.Is(err, unix.EOPNOTSUPP) {
		arpless.Store(true)
		return nil
	}
	if errors.Is(err, unix.ENOENT) && len(rules) > 0 {
		return nil // somebody took the chain away just now, which is seen: see Stands
	}
	return wrap(err, "ask for %s at %s", a.of, a.bridge)
}

func (a asking) remove(*kernel) error {
	rules, err := askingRules()
	handle, there := rules[a]
	if err != nil || !there {
		return wrap(err, "ask for %s as before", a.of)
	}
	err = batch(func(c *nftables.Conn) error {
		if len(rules) == 1 {
			c.DelTable(askingTable())
			return nil
		}
		return c.DelRule(&nftables.Rule{Table: askingTable(), Chain: &nftables.Chain{Name: chainAsking}, Handle: handle})
	})
	return wrap(gone(err), "ask for %s as before", a.of)
}

// askingRules are those that are there, with their handles.
func askingRules() (map[asking]uint64, error) {
	rules, err := steady(func() (map[asking]uint64, error) {
		all := map[asking]uint64{}
		err := dumpNFT(unix.NFT_MSG_GETRULE, nftables.TableFamilyARP, func(ad *netlink.AttributeDecoder) error {
			r, err := readRule(nftables.TableFamilyARP, ad)
			if a, ok := readAsking(r.comment); ok && r.chain.table == tableName {
				all[a] = r.handle
			}
			return err
		})
		return all, err
	})
	if err != nil {
		return nil, fmt.Errorf("list rules of ARP: %w", err)
	}
	return rules, nil
}
