package netstate

import (
	"bytes"
	"fmt"
	"net/netip"
	"slices"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"github.com/google/nftables/userdata"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// A fwChain names a chain of the host's nftables.
type fwChain struct {
	family      nftables.TableFamily
	table, name string
}

func (c fwChain) String() string {
	family := map[nftables.TableFamily]string{nftables.TableFamilyIPv4: "ip", nftables.TableFamilyIPv6: "ip6", nftables.TableFamilyINet: "inet"}[c.family]
	return fmt.Sprintf("table %s %s, chain %s", family, c.table, c.name)
}

// A fwRule is what of a rule says where packets go from it.
type fwRule struct {
	chain   fwChain
	handle  uint64
	comment string
	drops   bool     // it may end in a drop by itself
	jumps   []string // chains of its table that it leads to

	opening opening // of openings alone
}

// A firewall is what others do to packets that the host forwards: chains of the hook forward
// in the families of IP, and the rules of all chains there.
type firewall struct {
	forward  []fwChain
	policies map[fwChain]nftables.ChainPolicy
	rules    map[fwChain][]fwRule
	owned    map[fwChain]bool // tables, without a chain, in which their owner alone may write
}

// firewall reads it, once per operation. A kernel without nftables has none.
func (k *kernel) firewall() (*firewall, error) {
	if k.fw != nil {
		return k.fw, nil
	}
	fw, err := steady(readFirewall)
	k.fw = fw
	return fw, err
}

func readFirewall() (*firewall, error) {
	fw := &firewall{policies: map[fwChain]nftables.ChainPolicy{}, rules: map[fwChain][]fwRule{}, owned: map[fwChain]bool{}}
	for _, family := range []nftables.TableFamily{nftables.TableFamilyIPv4, nftables.TableFamilyIPv6, nftables.TableFamilyINet} {
		if err := fw.readChains(family); err != nil {
			return nil, fmt.Errorf("list chains: %w", err)
		}
		if !slices.ContainsFunc(fw.forward, func(c fwChain) bool { return c.family == family }) {
			continue
		}
		if err := fw.readTables(family); err != nil {
			return nil, fmt.Errorf("list tables: %w", err)
		}
		if err := fw.readRules(family); err != nil {
			return nil, fmt.Errorf("list rules: %w", err)
		}
	}
	return fw, nil
}

func (fw *firewall) readChains(family nftables.TableFamily) error {
	c, err := openNFT()
	if err != nil {
		return err
	}
	chains, err := c.ListChainsOfTableFamily(family)
	for _, ch := range chains {
		if ch.Type != nftables.ChainTypeFilter || ch.Hooknum == nil || *ch.Hooknum != *nftables.ChainHookForward || ch.Table.Name == tableName {
			continue
		}
		at := fwChain{family, ch.Table.Name, ch.Name}
		fw.forward = append(fw.forward, at)
		if ch.Policy != nil {
			fw.policies[at] = *ch.Policy
		}
	}
	return err
}

func (fw *firewall) readTables(family nftables.TableFamily) error {
	return dumpNFT(unix.NFT_MSG_GETTABLE, family, func(ad *netlink.AttributeDecoder) error {
		at, flags := fwChain{family: family}, uint32(0)
		for ad.Next() {
			switch ad.Type() {
			case unix.NFTA_TABLE_NAME:
				at.table = ad.String()
			case unix.NFTA_TABLE_FLAGS:
				flags = ad.Uint32()
			}
		}
		fw.owned[at] = flags&tableOwned != 0
		return ad.Err()
	})
}

// tableOwned is NFT_TABLE_F_OWNER of nf_tables.h.
const tableOwned = 2

// readRules decodes rules itself: packages that know all expressions fail at, or leave
// out, those that came later.
func (fw *firewall) readRules(family nftables.TableFamily) error {
	return dumpNFT(unix.NFT_MSG_GETRULE, family, func(ad *netlink.AttributeDecoder) error {
		r, err := readRule(family, ad)
		fw.rules[r.chain] = append(fw.rules[r.chain], r)
		return err
	})
}

func readRule(family nftables.TableFamily, ad *netlink.AttributeDecoder) (fwRule, error) {
	r := fwRule{chain: fwChain{family: family}}
	for ad.Next() {
		switch ad.Type() {
		case unix.NFTA_RULE_TABLE:
			r.chain.table = ad.String()
		case unix.NFTA_RULE_CHAIN:
			r.chain.name = ad.String()
		case unix.NFTA_RULE_HANDLE:
			r.handle = ad.Uint64()
		case unix.NFTA_RULE_USERDATA:
			r.comment, _ = userdata.GetString(ad.Bytes(), userdata.TypeComment)
		case unix.NFTA_RULE_EXPRESSIONS:
			ad.Nested(func(list *netlink.AttributeDecoder) error {
				for list.Next() {
					list.Nested(func(e *netlink.AttributeDecoder) error { return r.expression(byte(family), e) })
				}
				return nil
			})
		}
	}
	return r, ad.Err()
}

// expression notes where one expression of the rule may send packets.
func (r *fwRule) expression(family byte, ad *netlink.AttributeDecoder) error {
	var name string
	var data []byte
	for ad.Next() {
		switch ad.Type() {
		case unix.NFTA_EXPR_NAME:
			name = ad.String()
		case unix.NFTA_EXPR_DATA:
			data = ad.Bytes()
		}
	}
	switch name {
	case "reject", "queue":
		r.drops = true
	case "immediate":
		var v expr.Verdict
		var imm expr.Immediate
		if err := expr.Unmarshal(family, data, &imm); err != nil {
			return err
		}
		if imm.Register != unix.NFT_REG_VERDICT || len(imm.Data) > 0 {
			break
		}
		if err := expr.Unmarshal(family, data, &v); err != nil {
			return err
		}
		r.drops = r.drops || v.Kind == expr.VerdictDrop || v.Kind == expr.VerdictQueue
		if v.Kind == expr.VerdictJump || v.Kind == expr.VerdictGoto {
			r.jumps = append(r.jumps, v.Chain)
		}
	case "lookup": // a map of verdicts may hold any
		var l expr.Lookup
		if err := expr.Unmarshal(family, data, &l); err != nil {
			return err
		}
		r.drops = r.drops || l.IsDestRegSet && l.DestRegister == unix.NFT_REG_VERDICT
	case "target": // of iptables: what is not known to end in a drop does not
		target, _, err := extension(data)
		r.drops = r.drops || slices.Contains([]string{"REJECT", "NFQUEUE", "TARPIT"}, target)
		return err
	case "match": // of iptables, which keeps comments there when it loads what it saved
		match, info, err := extension(data)
		if match == "comment" {
			r.comment = string(bytes.TrimRight(info, "\x00"))
		}
		return err
	}
	return nil
}

// extension is the name of one of iptables' own, a match or a target, and what it was given.
func extension(data []byte) (name string, info []byte, err error) {
	ad, err := attributes(data)
	if err != nil {
		return "", nil, err
	}
	for ad.Next() {
		switch ad.Type() { // the same numbers for both
		case unix.NFTA_MATCH_NAME:
			name = ad.String()
		case unix.NFTA_MATCH_INFO:
			info = ad.Bytes()
		}
	}
	return name, info, ad.Err()
}

// shut lists the chains that may drop forwarded packets of an address, by their policy or
// by a rule, in them or where they lead.
func (fw *firewall) shut(addr netip.Addr) []fwChain {
	other := nftables.TableFamilyIPv4
	if addr.Is4() {
		other = nftables.TableFamilyIPv6
	}
	return slices.DeleteFunc(slices.Clone(fw.forward), func(c fwChain) bool {
		return c.family == other || !fw.drops(c, map[fwChain]bool{})
	})
}

func (fw *firewall) drops(c fwChain, seen map[fwChain]bool) bool {
	if policy, ok := fw.policies[c]; ok && policy == nftables.ChainPolicyDrop {
		return true
	}
	seen[c] = true
	return slices.ContainsFunc(fw.rules[c], func(r fwRule) bool {
		return r.drops || slices.ContainsFunc(r.jumps, func(name string) bool {
			to := fwChain{c.family, c.table, name}
			return !seen[to] && fw.drops(to, seen)
		})
	})
}

// openings are the rules among them that are ours.
func (fw *firewall) openings() []fwRule {
	var ours []fwRule
	for _, c := range fw.forward {
		for _, r := range fw.rules[c] {
			if o, ok := readOpening(r.comment); ok {
				r.opening = o
				ours = append(ours, r)
			}
		}
	}
	return ours
}

// lacking lists the chains that need the opening and do not have it.
func (fw *firewall) lacking(o opening) []fwChain {
	return slices.DeleteFunc(fw.shut(o.addr()), func(c fwChain) bool {
		return fw.trusts(c) || slices.ContainsFunc(fw.rules[c], func(r fwRule) bool { return r.comment == o.comment() })
	})
}

// trusts says that the chain's owner alone may write there, and wrote a rule for us, as its
// comment says.
func (fw *firewall) trusts(c fwChain) bool {
	return fw.ownedBy(c) && slices.ContainsFunc(fw.rules[c], func(r fwRule) bool { return r.comment == openingWord })
}

func (fw *firewall) ownedBy(c fwChain) bool { return fw.owned[fwChain{c.family, c.table, ""}] }

// Barred says why what a moved guest sends and gets by the bridge would not take its way here: the bridge
// is of a VRF, or a chain of the host's firewall may drop it, and lets nobody but its owner write there; nil: nothing does.
func Barred(bridge string) error {
	k := newKernel()
	if err := k.ofNoVRF(bridge); err != nil {
		return err
	}
	fw, err := k.firewall()
	if err != nil {
		return err
	}
	for _, c := range fw.forward {
		if fw.ownedBy(c) && !fw.trusts(c) && fw.drops(c, map[fwChain]bool{}) {
			return fmt.Errorf(`the firewall may drop connections that move, and lets nobody but its owner open it (%s): add at the head of that chain `+
				`iifname %q accept comment %q and oifname %q accept, or give the table no owner (firewalld: NftablesTableOwner=no)`, c, bridge, openingWord, bridge)
		}
	}
	return nil
}
