package netstate

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"github.com/google/nftables/userdata"
	"golang.org/x/sys/unix"
)

// An untracked address is one whose packets this host's connection tracking leaves alone
// while they take a detour. A host sees such connections in their middle, and often in one
// direction only: a firewall that drops what it takes for invalid would end them. What the guest says
// to the host itself is tracked as ever: the host saw that begin, and its firewall may take nothing else.
//
// Each has a chain of its own in the table "inet godwit", which goes with the last.
type untracked struct{ addr netip.Addr }

// chainUntracked begins the names of those chains.
const chainUntracked = "untracked-"

func untrackedTable() *nftables.Table {
	return &nftables.Table{Family: nftables.TableFamilyINet, Name: tableName}
}

// An address as nftables takes it in a name.
func (u untracked) chain() string {
	return chainUntracked + strings.ReplaceAll(u.addr.String(), ":", "_")
}

// rules are those of the chain. Their comments are compared, see bridgeRule.
func (u untracked) rules() []bridgeRule {
	notrack := []expr.Any{&expr.Notrack{}}
	return []bridgeRule{
		{words("tracked", "from", u.addr.String(), "to", "host"), join(ipSrcInet(u.addr), forHost(), accept())},
		{words("untracked", "from", u.addr.String()), join(ipSrcInet(u.addr), notrack)},
		{words("untracked", "to", u.addr.String()), join(ipDstInet(u.addr), notrack)},
	}
}

// anyhow are the rules of a kernel that cannot tell in a rule what is for the host.
func (u untracked) anyhow() []bridgeRule { return u.rules()[1:] }

// asNow says whether the chain holds the rules of now: an earlier release made others.
func (u untracked) asNow(held []string) bool {
	return slices.Equal(held, comments(u.rules())) || slices.Equal(held, comments(u.anyhow()))
}

func (u untracked) ensure(*kernel) error {
	all, err := untrackedChains()
	there := slices.Contains(all, u)
	if err == nil && there {
		var b book
		if b, err = readComments(unix.NFPROTO_INET, u.chain()); err == nil && u.asNow(b.chains[u.chain()]) {
			return nil
		}
	}
	if err != nil {
		return wrap(err, "leave %s untracked", u.addr)
	}
	lacks := func(err error) bool { return errors.Is(err, unix.ENOENT) || errors.Is(err, unix.EOPNOTSUPP) }
	if err = u.make(u.rules(), there); lacks(err) {
		err = u.make(u.anyhow(), there)
	}
	if lacks(err) {
		return nil // one that tracks nothing
	}
	return wrap(err, "leave %s untracked", u.addr)
}

// make has the chain hold rules instead of what it held (anew), in one transaction: at any instant packets meet the one
// or the other.
func (u untracked) make(rules []bridgeRule, anew bool) error {
	return batch(func(c *nftables.Conn) error {
		t := c.AddTable(untrackedTable())
		chain := c.AddChain(&nftables.Chain{Table: t, Name: u.chain(), Type: nftables.ChainTypeFilter,
			Hooknum: nftables.ChainHookPrerouting, Priority: nftables.ChainPriorityRaw})
		if anew {
			c.FlushChain(chain)
		}
		for _, r := range rules {
			c.AddRule(&nftables.Rule{Table: t, Chain: chain, Exprs: r.exprs, UserData: userdata.AppendString(nil, userdata.TypeComment, r.comment)})
		}
		return nil
	})
}

// forHost matches what goes to an address of the host.
func forHost() []expr.Any {
	local := binary.NativeEndian.AppendUint32(nil, unix.RTN_LOCAL)
	return []expr.Any{&expr.Fib{Register: 1, FlagDADDR: true, ResultADDRTYPE: true}, equals(local)}
}

func (u untracked) remove(*kernel) error {
	all, err := untrackedChains()
	if err != nil {
		return wrap(err, "track %s again", u.addr)
	}
	here := false
	for _, a := range all {
		here = here || a == u
	}
	if !here {
		return nil
	}
	c, err := openNFT()
	if err != nil {
		return wrap(err, "track %s again", u.addr)
	}
	if len(all) == 1 {
		c.DelTable(untrackedTable())
	} else {
		chain := &nftables.Chain{Table: untrackedTable(), Name: u.chain()}
		c.FlushChain(chain)
		c.DelChain(chain)
	}
	return wrap(gone(c.Flush()), "track %s again", u.addr)
}

// untrackedChains lists the addresses that have a chain.
func untrackedChains() ([]untracked, error) {
	c, err := openNFT()
	if err != nil {
		return nil, fmt.Errorf("open nftables: %w", err)
	}
	chains, err := steady(func() ([]*nftables.Chain, error) { return c.ListChainsOfTableFamily(nftables.TableFamilyINet) })
	if err != nil {
		return nil, fmt.Errorf("list chains: %w", err)
	}
	var all []untracked
	for _, chain := range chains {
		name, ok := strings.CutPrefix(chain.Name, chainUntracked)
		if !ok || chain.Table.Name != tableName {
			continue
		}
		if addr, err := netip.ParseAddr(strings.ReplaceAll(name, "_", ":")); err == nil {
			all = append(all, untracked{addr})
		}
	}
	return all, nil
}

// Of the family inet, the protocol of a packet is known by its own key.
func ipSrcInet(a netip.Addr) []expr.Any { return inet(a, ipSrc(a)) }
func ipDstInet(a netip.Addr) []expr.Any { return inet(a, ipDst(a)) }

func inet(a netip.Addr, bridged []expr.Any) []expr.Any {
	family := byte(unix.NFPROTO_IPV6)
	if a.Is4() {
		family = unix.NFPROTO_IPV4
	}
	own := []expr.Any{&expr.Meta{Key: expr.MetaKeyNFPROTO, Register: 1}, equals([]byte{family})}
	return append(own, bridged[len(etherType(0)):]...)
}
