package netstate

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"sort"
	"strings"

	"github.com/google/nftables"
	"github.com/google/nftables/userdata"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// tableName is our table of the bridge family.
const tableName = "godwit"

// Chains of a guest, and the one of all guests.
const (
	chainIn       = "in-"    // base chain, prerouting
	chainOut      = "out-"   // base chain, postrouting
	chainUp       = "up-"    // base chain, input
	chainAbout    = "about-" // notes
	chainRemember = "remember"
)

// maxComment is what NFT_USERDATA_MAXLEN leaves for a comment.
const maxComment = 250

func table() *nftables.Table {
	return &nftables.Table{Family: nftables.TableFamilyBridge, Name: tableName}
}

// A book is our table as read from the kernel: the comments of each chain.
type book struct {
	chains map[string][]string
}

// readBook reads the table; one that does not exist reads as empty.
func readBook() (book, error) { return readComments(unix.NFPROTO_BRIDGE, "") }

// readComments reads our table of a family, or one chain of it, where that is not "".
func readComments(family byte, chain string) (book, error) {
	return steady(func() (book, error) { return listComments(family, chain) })
}

func listComments(family byte, chain string) (book, error) {
	b := book{chains: map[string][]string{}}
	c, err := netlink.Dial(unix.NETLINK_NETFILTER, nil)
	if err != nil {
		return b, fmt.Errorf("open netfilter socket: %w", err)
	}
	defer c.Close()
	of := []netlink.Attribute{{Type: unix.NFTA_RULE_TABLE, Data: []byte(tableName + "\x00")}}
	if chain != "" {
		of = append(of, netlink.Attribute{Type: unix.NFTA_RULE_CHAIN, Data: []byte(chain + "\x00")})
	}
	name, err := netlink.MarshalAttributes(of)
	if err != nil {
		return b, err
	}
	replies, err := c.Execute(netlink.Message{
		Header: netlink.Header{Type: netlink.HeaderType(unix.NFNL_SUBSYS_NFTABLES<<8 | unix.NFT_MSG_GETRULE), Flags: netlink.Request | netlink.Dump},
		Data:   append([]byte{family, 0, 0, 0}, name...),
	})
	if errors.Is(err, unix.ENOENT) {
		return b, nil
	}
	if err != nil {
		return b, fmt.Errorf("list rules of table %s: %w", tableName, err)
	}
	for _, m := range replies {
		if err := b.add(m.Data); err != nil {
			return b, err
		}
	}
	return b, nil
}

func (b book) add(msg []byte) error {
	if len(msg) < 4 {
		return fmt.Errorf("list rules of table %s: short message", tableName)
	}
	ad, err := netlink.NewAttributeDecoder(msg[4:])
	if err != nil {
		return fmt.Errorf("list rules of table %s: %w", tableName, err)
	}
	var chain, comment, owner string
	for ad.Next() {
		switch ad.Type() {
		case unix.NFTA_RULE_TABLE:
			owner = ad.String()
		case unix.NFTA_RULE_CHAIN:
			chain = ad.String()
		case unix.NFTA_RULE_USERDATA:
			comment, _ = userdata.GetString(ad.Bytes(), userdata.TypeComment)
		}
	}
	if owner == tableName {
		b.chains[chain] = append(b.chains[chain], comment)
	}
	return ad.Err()
}

// states returns what the notes ask for, by guest, and the bridge MAC that the
// rules were written with.
func (b book) states() (map[string]State, map[string]net.HardwareAddr, error) {
	states, macs := map[string]State{}, map[string]net.HardwareAddr{}
	for chain, lines := range b.chains {
		guest, ok := strings.CutPrefix(chain, chainAbout)
		if !ok {
			continue
		}
		s, mac, err := readNotes(guest, lines)
		if err != nil {
			return nil, nil, err
		}
		states[guest], macs[guest] = s, mac
	}
	return states, macs, nil
}

// remembered returns the sysctls that were changed and their values before.
func (b book) remembered() map[string]string {
	old := map[string]string{}
	for _, line := range b.chains[chainRemember] {
		_, m := split(line)
		for path, value := range m {
			old[path] = value
		}
	}
	return old
}

// A page collects one transaction on the table.
type page struct {
	conn *nftables.Conn
	err  error
}

func newPage() *page {
	c, err := openNFT()
	if err != nil {
		return &page{err: fmt.Errorf("open nftables: %w", err)}
	}
	c.AddTable(table())
	return &page{conn: c}
}

// write makes a plain chain hold these notes, and base a base chain these rules;
// now is what it holds. What need only be added is only added: a transaction that
// deletes anything, or names a base chain again, waits for an RCU grace period,
// some 10 ms, and one that adds takes a fraction of one.
func (p *page) write(chain string, now, lines []string) {
	rules := make([]bridgeRule, len(lines))
	for i, line := range lines {
		rules[i].comment = line
	}
	p.fill(&nftables.Chain{Table: table(), Name: chain}, now, rules)
}

func (p *page) base(chain string, hook *nftables.ChainHook, now []string, rules []bridgeRule) {
	p.fill(&nftables.Chain{Table: table(), Name: chain, Type: nftables.ChainTypeFilter, Hooknum: hook, Priority: nftables.ChainPriorityRef(-300)}, now, rules)
}

func (p *page) fill(c *nftables.Chain, now []string, rules []bridgeRule) {
	if p.err != nil {
		return
	}
	if len(now) == 0 {
		p.conn.AddChain(c)
	}
	if len(now) > len(rules) || !slices.Equal(now, comments(rules)[:len(now)]) {
		p.conn.FlushChain(c)
		now = nil
	}
	for _, r := range rules[len(now):] {
		p.rule(c, r)
	}
}

func (p *page) rule(c *nftables.Chain, r bridgeRule) {
	if len(r.comment) > maxComment {
		p.err = fmt.Errorf("write rule %q: longer than %d characters", r.comment, maxComment)
		return
	}
	p.conn.AddRule(&nftables.Rule{Table: table(), Chain: c, Exprs: r.exprs, UserData: userdata.AppendString(nil, userdata.TypeComment, r.comment)})
}

func (p *page) counters(names []string) {
	if p.err != nil {
		return
	}
	for _, name := range names {
		p.conn.AddObj(&nftables.CounterObj{Table: table(), Name: name})
	}
}

// remove takes a guest's chains and counters out.
func (p *page) remove(guest string, counters []string) {
	if p.err != nil {
		return
	}
	for _, chain := range []string{chainIn + guest, chainOut + guest, chainUp + guest, chainAbout + guest} {
		c := &nftables.Chain{Table: table(), Name: chain}
		p.conn.AddChain(c) // so that removal never meets a missing one
		p.conn.FlushChain(c)
	}
	for _, chain := range []string{chainIn + guest, chainOut + guest, chainUp + guest, chainAbout + guest} {
		p.conn.DelChain(&nftables.Chain{Table: table(), Name: chain})
	}
	p.dropSets(guest)
	p.uncount(counters)
}

// uncount takes counters out that no rule uses.
func (p *page) uncount(counters []string) {
	if p.err != nil {
		return
	}
	for _, name := range counters {
		p.conn.AddObj(&nftables.CounterObj{Table: table(), Name: name}) // so that removal never meets a missing one
		p.conn.DeleteObject(&nftables.CounterObj{Table: table(), Name: name})
	}
}

// tear takes the whole table out.
func (p *page) tear() {
	if p.err == nil {
		p.conn.DelTable(table())
	}
}

// commit makes the transaction: all of it or nothing.
func (p *page) commit(what string) error {
	if p.err != nil {
		return p.err
	}
	if err := p.conn.Flush(); err != nil {
		return fmt.Errorf("commit nftables %s: %w", what, err)
	}
	return nil
}

// Counter names carry guest and address, in characters that nft prints bare.
func counterAway(guest string, a netip.Addr) string { return counter(guest, "away", a.String()) }
func counterVisiting(guest string, a netip.Addr) string {
	return counter(guest, "visiting", a.String())
}
func counterClosed(guest string) string { return counter(guest, "closed", "taps") }

func counter(guest, kind, name string) string {
	return kind + "_" + strings.ReplaceAll(name, ":", "-") + "_" + guest
}

// counters lists the counters that a state may have.
func counters(s State) []string {
	names := []string{counterClosed(s.Guest)}
	for _, a := range s.Away {
		names = append(names, counterAway(s.Guest, a.Addr))
	}
	for _, v := range s.Visiting {
		names = append(names, counterVisiting(s.Guest, v.Addr))
	}
	return unique(names)
}

func comments(rules []bridgeRule) []string {
	var out []string
	for _, r := range rules {
		out = append(out, r.comment)
	}
	return out
}

func sorted[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	sort.Strings(keys)
	return keys
}

func unique[T comparable](in []T) []T {
	seen := map[T]bool{}
	var out []T
	for _, x := range in {
		if !seen[x] {
			seen[x] = true
			out = append(out, x)
		}
	}
	return out
}
