package qga

import (
	"context"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"godwit/vm/guest"
)

// capabilities are the methods that work, as Info reports them.
var capabilities = []string{"await_join", "configure", "drop_address", "exec", "info", guest.CapListeners, "make_main", "retire", "users"}

// Info describes the guest.
func (c *Client) Info(ctx context.Context) (guest.Info, error) {
	const script = `uname -r
cat /proc/sys/kernel/random/boot_id
cut -d' ' -f1 /proc/uptime
cat /proc/sys/net/mptcp/enabled 2>/dev/null || echo 0
echo . $(cd /proc/sys/net/ipv6/conf 2>/dev/null && grep -lx 0 */disable_ipv6)
l=$(ip -d -o link show 2>/dev/null)
echo . $(printf '%%s\n' "$l" | while read -r i n r; do case "$r " in %s) echo ${n%%%%[:@]*};; esac; done)
echo . $(printf '%%s\n' "$l" | while read -r i n r; do case "$r " in %s) echo ${n%%%%[:@]*};; esac; done)
echo temporary $(ip -6 -o addr show temporary 2>/dev/null | while read -r i n f a r; do echo ${a%%%%/*}; done)
ip mptcp limits 2>/dev/null || true`
	out, err := c.look(ctx, "info", fmt.Sprintf(script, ofKind(""), ofKind("_slave")))
	if err != nil {
		return guest.Info{}, err
	}
	lines := strings.Split(strings.TrimSpace(out), "\n")
	if len(lines) < 7 {
		return guest.Info{}, fmt.Errorf("info: the guest says %.200q", out)
	}
	uptime, _ := strconv.ParseFloat(lines[2], 64)
	i := guest.Info{Protocol: guest.Protocol, Kernel: lines[0], BootID: lines[1], UptimeMS: int64(uptime * 1000),
		MPTCP: lines[3] == "1", Capabilities: capabilities}
	rest, temporary := lines[7:], map[string]bool{}
	if len(rest) > 0 && strings.HasPrefix(rest[0], "temporary") {
		rest, temporary = rest[1:], wordsOf(rest[0])
	}
	words := strings.Fields(strings.Join(rest, " ")) // add_addr_accepted N subflows N
	for at := 0; at+1 < len(words); at += 2 {
		n, _ := strconv.ParseUint(words[at+1], 10, 32)
		switch words[at] {
		case "subflows":
			i.Subflows = uint32(n)
		case "add_addr_accepted":
			i.AddrAccepted = uint32(n)
		}
	}
	if i.NICs, err = c.nics(ctx); err == nil {
		err = said("info", &i)
	}
	if err != nil {
		return guest.Info{}, err
	}
	ipv6, above, part := wordsOf(lines[4]), wordsOf(lines[5]), wordsOf(lines[6])
	for at := range i.NICs {
		nic := &i.NICs[at]
		nic.NoIPv6, nic.Above, nic.Part = !ipv6[nic.Name+"/disable_ipv6"], above[nic.Name], part[nic.Name]
		for _, p := range nic.Addrs {
			if temporary[p.Addr().String()] {
				nic.Temporary = append(nic.Temporary, p.Addr())
			}
		}
	}
	return i, nil
}

// wordsOf are those of a line, which a guest may make as long as its answer: it is taken apart once, and not for each NIC.
func wordsOf(line string) map[string]bool {
	all := map[string]bool{}
	for word := range strings.FieldsSeq(line) {
		all[word] = true
	}
	return all
}

// said is an error where the guest says more than any guest has.
func said(what string, result any) error {
	if err := guest.Bounded(result); err != nil {
		return fmt.Errorf("%s: its answer has %w", what, err)
	}
	return nil
}

// nics are the guest's network interfaces. The agent does not say which are up: one
// with an address is.
func (c *Client) nics(ctx context.Context) ([]guest.NIC, error) {
	var found []struct {
		Name string `json:"name"`
		MAC  string `json:"hardware-address"`
		IPs  []struct {
			Addr string `json:"ip-address"`
			Bits int    `json:"prefix"`
		} `json:"ip-addresses"`
	}
	if err := c.execute(ctx, "guest-network-get-interfaces", nil, &found); err != nil {
		return nil, err
	}
	var all []guest.NIC
	for _, f := range found {
		if f.MAC == "" || f.Name == "lo" {
			continue
		}
		nic := guest.NIC{Name: f.Name, MAC: f.MAC, Up: len(f.IPs) > 0}
		for _, ip := range f.IPs {
			addr, err := netip.ParseAddr(ip.Addr)
			if err != nil || addr.IsLinkLocalUnicast() {
				continue
			}
			prefix := netip.PrefixFrom(addr.WithZone(""), ip.Bits)
			if !prefix.IsValid() { // it would be written down, and could not be read again
				return nil, fmt.Errorf("NIC %.20q has the address %s with a prefix of %d bits", f.Name, addr, ip.Bits)
			}
			nic.Addrs = append(nic.Addrs, prefix)
		}
		all = append(all, nic)
	}
	return all, nil
}

// Configure gives a NIC its addresses; see guest.Configure. The LAN does not hear of
// them: the agent has nothing to tell it with, and who wants to know asks.
func (c *Client) Configure(ctx context.Context, p guest.Configure) (guest.Configured, error) {
	if p.Table < 1 || len(p.Addrs) == 0 {
		return guest.Configured{}, fmt.Errorf("configure %s: needs a table above 0 and an address", p.MAC)
	}
	script, err := configureScript(p)
	if err != nil {
		return guest.Configured{}, err
	}
	out, err := c.do(ctx, "configure "+p.MAC, script)
	if err != nil {
		return guest.Configured{}, err
	}
	words := strings.Fields(out)
	if len(words) == 0 {
		return guest.Configured{}, fmt.Errorf("configure %s: the guest does not say its device", p.MAC)
	}
	made := guest.Configured{Device: words[0]}
	for _, word := range words[1:] {
		id, err := strconv.ParseUint(word, 10, 8)
		if err != nil {
			return made, fmt.Errorf("configure %s: the guest says %.200q", p.MAC, out)
		}
		made.EndpointIDs = append(made.EndpointIDs, uint8(id))
	}
	return made, said("configure", &made)
}

// MakeMain sends what is bound to no address out of that NIC.
func (c *Client) MakeMain(ctx context.Context, mac string) error {
	s, err := newScript(mac, "")
	if err != nil {
		return err
	}
	s.line("mainly")
	_, err = c.do(ctx, "make "+mac+" main", s.String())
	return err
}

// Retire takes addresses from a NIC; see guest.Retire. Where a connection has nothing
// but some that are kept, all of them keep their subflows there: closing some of
// them alone takes our own program.
func (c *Client) Retire(ctx context.Context, p guest.Retire) error {
	table, err := c.sockets(ctx)
	if err != nil {
		return err
	}
	needed, behind := table.needed(p.Addrs)
	if behind > 0 && !p.Keep {
		return fmt.Errorf("retire %s: %d %w", p.MAC, behind, guest.ErrBound)
	}
	rtt := time.Duration(0)
	if !p.Keep { // or the address lives on, on the other NIC
		rtt = table.slowest(p.Addrs)
	}
	script, err := retireScript(p, needed, rtt)
	if err != nil {
		return err
	}
	_, err = c.do(ctx, "retire "+p.MAC, script)
	return err
}

// DropAddress removes kept addresses, with their endpoints and source routes.
func (c *Client) DropAddress(ctx context.Context, addrs ...netip.Addr) error {
	_, err := c.do(ctx, "drop addresses", dropScript(addrs))
	return err
}

func dropScript(addrs []netip.Addr) string {
	s := &script{}
	s.functions()
	for _, addr := range addrs {
		s.withdraw(addr)
		s.unlead(addr)
		s.line("drop %s", word(addr))
	}
	return s.String()
}
