package qga

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"godwit/vm/guest"
)

// socketScript lists TCP sockets, one a line: STATE LOCAL PEER TOKENS RTT, as ss has the last two, or "-": of an MPTCP
// subflow (token:REMOTE(id:N)/LOCAL(id:N)), and smoothed (rtt:MILLISECONDS/VARIANCE); then, after a line "udp", the
// connected ones of UDP. A subflow whose flags have neither M, as the peer speaks MPTCP, nor J or j, as it is a join,
// is plain: it fell back (flags:mc), or has no answer yet. One with m and no join is the first of a connection that the
// guest opened: its tokens begin with "dialled:". No token of the peer says nothing: the first subflow of any
// connection has none. What falls back later keeps its flags: the connection of that token says so ("fallback"), where
// ss and the kernel list these (mptcp_diag), which they do beside the others. What lists both begins each line with
// which it is.
// Of those in FIN-WAIT-2, which have sent all and may get more, there are plain ones alone that a process holds
// (ino:N): the kernel is only finishing the others. So it is with plain ones that both ends have closed, once no more
// than their FIN waits for its acknowledgement, which is one byte of Send-Q.
// An ss that is missing, or does not know these options, is an error, and no empty list.
const socketScript = `set -e
all=$(ss -HOntMaie 2>/dev/null) || all=$(ss -HOntaie)
connected=$(ss -HOnua state established)
printf '%s\n' "$all" | awk 'BEGIN { n = 0 }
$1 == "mptcp" { if (/ fallback /) for (i = 7; i <= NF; i++) if (sub(/^token:0*/, "", $i)) late[$i] = 1; next }
NF { o = $1 == "tcp"; s = $(1 + o); if (s == "LISTEN" || s == "TIME-WAIT") next; t = r = "-"; held = fell = d = 0
for (i = 6 + o; i <= NF; i++) { if ($i ~ /^token:/) t = $i; if ($i ~ /^flags:[^MJj]*$/) fell = 1; if ($i ~ /^flags:[^Jj]*m[^Jj]*$/) d = 1; if ($i ~ /^rtt:/) r = $i; if ($i ~ /^ino:[1-9]/) held = 1 }
if (fell) t = "-"; if (d) sub(/^token:/, "dialled:", t)
has[n] = held; over[n] = s ~ /^(LAST-ACK|CLOSING)$/ && $(3 + o) <= 1; state[n] = s; ends[n] = $(4 + o) " " $(5 + o); token[n] = t; rtt[n++] = r }
END { for (i = 0; i < n; i++) { t = token[i]; sub(/^.*\//, "", t); sub(/\(.*$/, "", t); sub(/^0*/, "", t); if (t in late) token[i] = "-"
if (token[i] == "-" ? !over[i] && (state[i] != "FIN-WAIT-2" || has[i]) : state[i] != "FIN-WAIT-2") print state[i], ends[i], token[i], rtt[i] } }'
echo udp
printf '%s\n' "$connected" | awk 'NF { print "ESTAB", $3, $4, "-", "-" }'`

// forwardedScript lists in the same way, after a line "tcp", the connections of TCP that the guest forwards for
// containers in the name of addrs, as package conntrack tells them. A kernel that does not tell them keeps nobody from
// knowing the others. It takes its time where there are tens of thousands: only who wants them asks.
func forwardedScript(addrs []netip.Addr) string {
	var own strings.Builder
	for _, addr := range addrs {
		own.WriteString(` own["` + addr.WithZone("").StringExpanded() + `"];`)
	}
	return `
[ -r /proc/net/nf_conntrack ] || exit 0
echo tcp
awk 'BEGIN {` + own.String() + ` }
$3 == "tcp" && ($5 ~ /=/ || $6 ~ /^(SYN_RECV|ESTABLISHED|FIN_WAIT|CLOSE_WAIT)$/) {
n = 0; for (i = 5; i <= NF; i++) if ($i ~ /^(src|dst|sport|dport)=/) e[n++] = substr($i, index($i, "=") + 1)
if (n != 8) next
s = $5 ~ /=/ ? "ESTAB" : $6 # a flow table tells no state
sub(/^ESTABLISHED$/, "ESTAB", s); sub(/^FIN_WAIT$/, "FIN-WAIT-1", s); sub(/_/, "-", s)
if (e[1] != e[4] && e[1] in own) print s, "[" e[1] "]:" e[3], "[" e[0] "]:" e[2], "-", "-"
if (e[0] != e[5] && e[5] in own) print s, "[" e[5] "]:" e[7], "[" e[4] "]:" e[6], "outward", "-" }' /proc/net/nf_conntrack || :`
}

// socket is one of TCP or UDP.
type socket struct {
	state         string // as ss says it: ESTAB, CLOSE-WAIT, …
	local, remote netip.AddrPort
	token         string        // of the MPTCP connection that it is a subflow of; "" is none
	rtt           time.Duration // smoothed; 0: not known
	outward       bool          // see guest.Connection
}

// sockets are those of a guest at one time.
type sockets struct {
	tcp, udp  []socket
	multipath []socket        // MPTCP connections, by the ends with which they began; where these were asked for
	unlisted  bool            // they were, and the guest cannot list them
	dialled   map[string]bool // MPTCP connections that the guest opened, by token
}

// sockets lists them, and what the guest forwards in the name of addrs.
func (c *Client) sockets(ctx context.Context, addrs ...netip.Addr) (sockets, error) {
	script := socketScript
	if len(addrs) > 0 {
		script += forwardedScript(addrs)
	}
	return c.list(ctx, script)
}

func (c *Client) list(ctx context.Context, script string) (sockets, error) {
	out, err := c.look(ctx, "list sockets", script)
	if err != nil {
		return sockets{}, err
	}
	return parseSockets(out)
}

func parseSockets(out string) (table sockets, err error) {
	table.dialled = map[string]bool{}
	into := &table.tcp
	for _, line := range strings.Split(strings.TrimSpace(out), "\n") {
		switch line {
		case "tcp":
			into = &table.tcp
			continue
		case "udp":
			into = &table.udp
			continue
		case "mptcp":
			into = &table.multipath
			continue
		case "unlisted":
			table.unlisted = true
			continue
		}
		words := strings.Fields(line)
		if len(words) != 5 {
			return sockets{}, fmt.Errorf("list sockets: the guest says %.200q", line)
		}
		tokens, dialled := strings.CutPrefix(words[3], "dialled:")
		if dialled {
			tokens = "token:" + tokens
		}
		s := socket{state: words[0], token: tokenOf(tokens), rtt: rttOf(words[4]), outward: words[3] == "outward"}
		if s.local, err = endOf(words[1]); err == nil {
			s.remote, err = endOf(words[2])
		}
		if err != nil {
			continue // bound to a device or to all addresses: nobody's connection
		}
		*into = append(*into, s)
		if dialled && s.token != "" {
			table.dialled[s.token] = true
		}
	}
	return table, nil
}

// endOf reads ADDR:PORT, or ADDR%DEVICE:PORT, as ss has them.
func endOf(text string) (netip.AddrPort, error) {
	host, port, ok := cutLast(text, ":")
	if !ok {
		return netip.AddrPort{}, fmt.Errorf("%q is no address with a port", text)
	}
	host, _, _ = strings.Cut(strings.Trim(host, "[]"), "%")
	end, err := netip.ParseAddrPort("[" + host + "]:" + port)
	if addr, v4err := netip.ParseAddrPort(host + ":" + port); v4err == nil {
		end, err = addr, nil
	}
	return netip.AddrPortFrom(end.Addr().Unmap(), end.Port()), err
}

func cutLast(text, sep string) (before, after string, found bool) {
	i := strings.LastIndex(text, sep)
	if i < 0 {
		return text, "", false
	}
	return text[:i], text[i+len(sep):], true
}

// tokenOf is the guest's own token of "token:REMOTE(id:N)/LOCAL(id:N)". A subflow without
// any fell back to TCP.
func tokenOf(word string) string {
	tokens, ok := strings.CutPrefix(word, "token:")
	if !ok {
		return ""
	}
	remote, local, _ := strings.Cut(tokens, "/")
	remote, _, _ = strings.Cut(remote, "(")
	local, _, _ = strings.Cut(local, "(")
	if strings.Trim(remote, "0") == "" && strings.Trim(local, "0") == "" {
		return ""
	}
	return local
}

// rttOf reads "rtt:MILLISECONDS/VARIANCE".
func rttOf(word string) time.Duration {
	number, ok := strings.CutPrefix(word, "rtt:")
	if !ok {
		return 0
	}
	number, _, _ = strings.Cut(number, "/")
	ms, err := strconv.ParseFloat(number, 64)
	if err == nil && ms > 0 && ms < 1e6 {
		return time.Duration(ms * float64(time.Millisecond))
	}
	return 0
}

// slowest is the longest RTT of the MPTCP subflows on addrs.
func (t sockets) slowest(addrs []netip.Addr) (rtt time.Duration) {
	for _, s := range t.tcp {
		if s.token != "" && slices.Contains(addrs, s.local.Addr()) {
			rtt = max(rtt, s.rtt)
		}
	}
	return rtt
}

// behind are the MPTCP connections with a subflow on an address of old and none on
// one of fresh, nor, where fresh is nil, on any other address: by token, one of their
// subflows.
func (t sockets) behind(old, fresh []netip.Addr) map[string]socket {
	out := map[string]socket{}
	for _, s := range t.tcp {
		if s.token != "" && s.live() && slices.Contains(old, s.local.Addr()) {
			out[s.token] = s
		}
	}
	for _, s := range t.tcp {
		beyond := slices.Contains(fresh, s.local.Addr()) || fresh == nil && !slices.Contains(old, s.local.Addr())
		if beyond && s.state == "ESTAB" {
			delete(out, s.token)
		}
	}
	return out
}

// needed are those of addrs that MPTCP connections have subflows on which have none on any other, and how many these
// are.
func (t sockets) needed(addrs []netip.Addr) (needed []netip.Addr, connections int) {
	behind := t.behind(addrs, nil)
	for _, s := range t.tcp {
		_, needs := behind[s.token]
		if addr := s.local.Addr(); needs && s.live() && slices.Contains(addrs, addr) && !slices.Contains(needed, addr) {
			needed = append(needed, addr)
		}
	}
	return needed, len(behind)
}

// joined are the tokens of connections with an established subflow on one of addrs.
func (t sockets) joined(addrs []netip.Addr) map[string]bool {
	out := map[string]bool{}
	for _, s := range t.tcp {
		if s.token != "" && s.state == "ESTAB" && slices.Contains(addrs, s.local.Addr()) {
			out[s.token] = true
		}
	}
	return out
}

// live says that somebody may still get data by the socket.
func (s socket) live() bool {
	switch s.state {
	case "ESTAB", "CLOSE-WAIT", "SYN-RECV":
		return true
	case "FIN-WAIT-2", "LAST-ACK", "CLOSING": // see socketScript
		return s.token == ""
	default:
		return false
	}
}

// apart are the tokens of those connections of which no address of the client reaches one that p announces.
func (t sockets) apart(behind map[string]socket, p guest.AwaitJoin) map[string]bool {
	out := map[string]bool{}
	for token := range behind {
		out[token] = true
	}
	for _, s := range t.tcp {
		if p.Reaches(s.remote.Addr()) {
			delete(out, s.token)
		}
	}
	return out
}

// late is how many of them come within guest.ApartFor, or not at all: those that are apart, and those that the guest
// opened, to which nothing that it announces leads.
func (t sockets) late(behind map[string]socket, apart map[string]bool) (n int) {
	for token := range behind {
		if apart[token] || t.dialled[token] {
			n++
		}
	}
	return n
}

// joinPoll is how often AwaitJoin lists the connections; a listing takes some 100 ms.
const joinPoll = 100 * time.Millisecond

// unableListed bounds the list of those that stayed behind.
const unableListed = 200

// AwaitJoin waits for connections to follow, by listing them again and again; see
// guest.AwaitJoin. Nothing is announced again for those that stay behind.
func (c *Client) AwaitJoin(ctx context.Context, p guest.AwaitJoin) (guest.Joins, error) {
	start := time.Now()
	limit := time.Duration(p.LimitMS) * time.Millisecond
	seen := map[string]bool{}
	var last map[string]socket
	var joined, apart, dialled map[string]bool
	for {
		table, err := c.sockets(ctx)
		if err != nil {
			return guest.Joins{}, err
		}
		last, joined = table.behind(p.Old, p.Addrs), table.joined(p.Addrs)
		for token := range last {
			seen[token] = true
		}
		for _, s := range table.tcp { // joined already, but not only there
			if joined[s.token] && slices.Contains(p.Old, s.local.Addr()) {
				seen[s.token] = true
			}
		}
		apart, dialled = table.apart(last, p), table.dialled
		if len(last) == 0 || time.Since(start) >= limit || table.late(last, apart) == len(last) && time.Since(start) >= guest.ApartFor {
			break
		}
		select {
		case <-time.After(joinPoll):
		case <-ctx.Done():
			return guest.Joins{}, ctx.Err()
		}
	}
	joins := guest.Joins{Total: len(seen), WaitedMS: time.Since(start).Milliseconds()}
	began := c.beganOf(ctx, last)
	for token := range seen {
		s, behind := last[token]
		if as, known := began[shortToken(token)]; known {
			s = as
		}
		switch {
		case joined[token]:
			joins.Joined++
		case !behind:
			joins.Ended++
		case len(joins.Unable) == unableListed:
			joins.Omitted++
		case apart[token]:
			joins.Unable = append(joins.Unable, guest.Unable{Local: s.local, Remote: s.remote, Why: guest.WhyApart(s.remote.Addr())})
		case dialled[token]:
			joins.Unable = append(joins.Unable, guest.Unable{Local: s.local, Remote: s.remote, Why: guest.WhyDialledPortless})
		default:
			joins.Unable = append(joins.Unable, guest.Unable{Local: s.local, Remote: s.remote, Why: guest.WhyUnjoined(limit)})
		}
	}
	slices.SortFunc(joins.Unable, func(a, b guest.Unable) int { return a.Remote.Compare(b.Remote) })
	return joins, nil
}

// TellAgain takes our own program: one endpoint beside another of the same address has a port, where the kernel listens.
func (c *Client) TellAgain(context.Context, guest.TellAgain) (guest.Joins, error) {
	return guest.Joins{}, fmt.Errorf("guest %s: %w", guest.CapTellAgain, guest.ErrUnsupported)
}

// socketsListed bounds the list of sockets that use an address.
const socketsListed = 100

// Users says who needs the addresses. Datagrams of nobody's connected socket are not
// counted.
func (c *Client) Users(ctx context.Context, addrs ...netip.Addr) (guest.Users, error) {
	table, err := c.sockets(ctx, addrs...)
	if err != nil {
		return guest.Users{}, err
	}
	return table.users(addrs), nil
}

func (t sockets) users(addrs []netip.Addr) (users guest.Users) {
	connections := map[string]bool{}
	list := func(s socket, state string) {
		if len(users.Sockets) < socketsListed {
			users.Sockets = append(users.Sockets, guest.Socket{Local: s.local, Remote: s.remote, State: state})
		}
	}
	for _, s := range t.tcp {
		switch {
		case !slices.Contains(addrs, s.local.Addr()):
		case s.token == "" && (s.live() || s.state == "FIN-WAIT-1"):
			users.TCP++
			switch {
			case s.outward:
				users.Outward++
			case s.state == "SYN-RECV":
				users.Opening++
			}
			list(s, s.state)
		case s.token != "" && s.live() && !connections[s.token]:
			connections[s.token] = true
			if t.dialled[s.token] {
				users.Dialled++
			}
			list(s, "mptcp")
		}
	}
	users.MPTCP = len(connections)
	for _, s := range t.udp {
		if slices.Contains(addrs, s.local.Addr()) {
			users.UDP++
			list(s, "udp")
		}
	}
	slices.SortFunc(users.Sockets, func(a, b guest.Socket) int { return cmp.Compare(a.Remote.String(), b.Remote.String()) })
	return users
}
