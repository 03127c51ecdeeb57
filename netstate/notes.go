package netstate

import (
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"
)

// A note is one line of the notebook: a kind, then key=value words. Notes are
// comments of rules without expressions, in chains that nothing jumps to.
//
//	guest bridge=br-guest lan=lan0 taps=t1a,t1b mac=52:54:00:00:00:01 unfinished=yes
//	away addr=10.1.1.5 mac=52:54:00:00:01:0a tap=t1a tunnel=gw1 gateway=10.1.1.1
//	visiting addr=10.1.1.5 mac=52:54:00:00:01:0a tap=t1a taps=t1a,t1b gateway=10.1.1.1 tunnel=gw1
//	offlink tap=t1a routers=fe80::1
//	active addr=10.1.1.5
//
// Active addresses stand last, so that flipping only adds lines. The guest is noted as unfinished, after all else,
// while what the notes speak of is being made or removed: who finds it so knows that some of that may not be there.

// notes writes a state down. mac is the bridge's.
func notes(s State, mac net.HardwareAddr) []string {
	lines := []string{words("guest", "bridge", s.Bridge, "lan", s.LAN, "taps", strings.Join(s.Taps, ","), "mac", mac.String())}
	var active []string
	for _, a := range s.Away {
		if a.Active {
			active = append(active, words("active", "addr", a.Addr.String()))
		}
		lines = append(lines, words("away", "addr", a.Addr.String(), "mac", a.MAC.String(), "known", a.Known.String(), "tap", a.Tap,
			"tunnel", a.Tunnel, "gateway", addrWord(a.Gateway), "subnet", prefixWord(a.Subnet), "home", a.Home, "fits", number(a.Fits)))
	}
	for _, v := range s.Visiting {
		if v.Active {
			active = append(active, words("active", "addr", v.Addr.String()))
		}
		lines = append(lines, words("visiting", "addr", v.Addr.String(), "mac", v.MAC.String(), "tap", v.Tap,
			"taps", strings.Join(v.Taps, ","), "gateway", addrWord(v.Gateway), "tunnel", v.Tunnel, "fits", number(v.Fits), "asks", v.asks(), "known", v.Known.String(),
			"publish", number(v.Publish), "direct", yes(v.Direct), "waits", yes(v.Waits), "leaves", v.Leaves))
	}
	for _, o := range s.OffLink {
		lines = append(lines, words("offlink", "tap", o.Tap, "routers", addrWords(o.Routers)))
	}
	return append(lines, active...)
}

const unfinishedWord = " unfinished=yes"

// noteUnfinished is the note of a guest whose state becomes s.
func noteUnfinished(s State, mac net.HardwareAddr) string { return notes(s, mac)[0] + unfinishedWord }

func isUnfinished(line string) bool { return strings.HasSuffix(line, unfinishedWord) }

func yes(b bool) string {
	if b {
		return "yes"
	}
	return ""
}

// asks says what of Asks and Renews holds.
func (v Visiting) asks() string {
	if v.Asks && v.Renews {
		return "own"
	}
	return yes(v.Asks)
}

// number writes one that is not 0.
func number(n int) string {
	if n == 0 {
		return ""
	}
	return strconv.Itoa(n)
}

func addrWord(a netip.Addr) string {
	if !a.IsValid() {
		return ""
	}
	return a.String()
}

func prefixWord(p netip.Prefix) string {
	if !p.IsValid() {
		return ""
	}
	return p.String()
}

func addrWords(all []netip.Addr) string {
	var out []string
	for _, a := range all {
		out = append(out, a.String())
	}
	return strings.Join(out, ",")
}

func addrList(s string) []netip.Addr {
	var out []netip.Addr
	for _, word := range list(s) {
		if a, err := netip.ParseAddr(word); err == nil {
			out = append(out, a)
		}
	}
	return out
}

func words(kind string, pairs ...string) string {
	out := kind
	for i := 0; i+1 < len(pairs); i += 2 {
		if pairs[i+1] != "" {
			out += " " + pairs[i] + "=" + pairs[i+1]
		}
	}
	return out
}

// readNotes is the inverse of notes. Lines may come twice: where Set was cut short, the old and the new wish stand side
// by side. Kinds that are not known are those of a newer release, which was here before this one, and passed over: an
// error would keep this host from setting, clearing and looking at any guest's state.
func readNotes(guest string, lines []string) (State, net.HardwareAddr, error) {
	s := State{Guest: guest}
	var bridgeMAC net.HardwareAddr
	for _, line := range lines {
		kind, m := split(line)
		mac, macErr := net.ParseMAC(m["mac"])
		addr, addrErr := netip.ParseAddr(m["addr"])
		gateway, _ := netip.ParseAddr(m["gateway"])
		subnet, _ := netip.ParsePrefix(m["subnet"])
		known, _ := net.ParseMAC(m["known"])
		fits, _ := strconv.Atoi(m["fits"])
		publish, _ := strconv.Atoi(m["publish"])
		switch {
		case kind == "guest":
			s.Bridge, s.LAN, s.Taps, bridgeMAC = m["bridge"], m["lan"], list(m["taps"]), mac
		case kind == "offlink":
			s.OffLink = append(s.OffLink, OffLink{Tap: m["tap"], Routers: addrList(m["routers"])})
		case kind == "active" && addrErr == nil:
			for i := range s.Away {
				if s.Away[i].Addr == addr {
					s.Away[i].Active = true
				}
			}
			for i := range s.Visiting {
				if s.Visiting[i].Addr == addr && s.Visiting[i].Leaves != "" {
					s.Visiting[i].Active = true
				}
			}
		case kind != "active" && kind != "away" && kind != "visiting":
		case macErr != nil || addrErr != nil:
			return s, nil, fmt.Errorf("read note of guest %s: %q is not ours", guest, line)
		case kind == "away":
			s.Away = append(s.Away, Away{Addr: addr, MAC: mac, Known: known, Tap: m["tap"], Tunnel: m["tunnel"], Gateway: gateway, Subnet: subnet, Home: m["home"], Fits: fits})
		case kind == "visiting":
			s.Visiting = append(s.Visiting, Visiting{Addr: addr, MAC: mac, Tap: m["tap"], Taps: list(m["taps"]), Gateway: gateway, Tunnel: m["tunnel"], Fits: fits, Asks: m["asks"] != "", Renews: m["asks"] == "own", Known: known, Publish: publish, Direct: m["direct"] != "", Waits: m["waits"] != "", Leaves: m["leaves"]})
		}
	}
	return s, bridgeMAC, nil
}

func split(line string) (kind string, m map[string]string) {
	fields := strings.Fields(line)
	m = map[string]string{}
	if len(fields) == 0 {
		return "", m
	}
	for _, f := range fields[1:] {
		key, value, _ := strings.Cut(f, "=")
		m[key] = value
	}
	return fields[0], m
}

func list(s string) []string {
	if s == "" {
		return nil
	}
	return strings.Split(s, ",")
}
