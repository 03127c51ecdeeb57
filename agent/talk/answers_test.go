package talk

import (
	"encoding/json"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"godwit/agent/config"
	"godwit/agent/peer"
	"godwit/agent/probe"
	"godwit/agent/ways"
	"godwit/migration"
)

// TestAcceptanceIsOfItsOwnNetworks: a destination gives addresses of its own.
func TestAcceptanceIsOfItsOwnNetworks(t *testing.T) {
	p := good().Plan
	there := config.Neighbour{Host: "rome", V4: netip.MustParsePrefix("10.2.1.0/24")}
	answer := func(home, prefix string) Acceptance {
		return Acceptance{Token: make([]byte, probe.TokenLength), Next: []migration.Address{{Prefix: netip.MustParsePrefix(prefix), Home: home}}}
	}
	keeps := p
	keeps.Network = "tunnel"
	for name, c := range map[string]struct {
		a    Acceptance
		plan migration.Plan
		ok   bool
	}{
		"good": {answer("rome", "10.2.1.20/24"), p, true}, "of another home": {answer("paris", "10.2.1.20/24"), p, false},
		"of another subnet": {answer("rome", "10.1.1.99/24"), p, false}, "of a family that it has not": {answer("rome", "fd00::9/64"), p, true},
		"keeps it": {answer("paris", "10.1.1.20/24"), keeps, true}, "keeps another": {answer("paris", "10.1.1.21/24"), keeps, false},
		"keeps it, of no host": {answer("x\x1b[2J", "10.1.1.20/24"), keeps, false},
	} {
		if err := c.a.Check(c.plan, there); (err == nil) != c.ok {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestAcceptanceCheck: what a destination answers in check is refused where it cannot be meant.
func TestAcceptanceCheck(t *testing.T) {
	there := config.Neighbour{Host: "rome", V4: netip.MustParsePrefix("10.2.0.0/16"), V6: netip.MustParsePrefix("fd00:2::/64")}
	next := func(prefix string) migration.Address {
		return migration.Address{Prefix: netip.MustParsePrefix(prefix), Home: "rome"}
	}
	many := func(n int) (out []migration.Address) {
		for _, addr := range addressesFrom(netip.MustParseAddr("10.2.1.1"), n) {
			out = append(out, migration.Address{Prefix: netip.PrefixFrom(addr, 16), Home: "rome"})
		}
		return out
	}
	end := netip.MustParseAddrPort("198.51.100.1:700")
	for name, c := range map[string]struct {
		change func(*Acceptance)
		word   string
	}{
		"good":                   {func(*Acceptance) {}, ""},
		"of both families":       {func(a *Acceptance) { a.Next = append(a.Next, next("fd00:2::20/64")) }, ""},
		"as many as a guest has": {func(a *Acceptance) { a.Next = many(migration.MostAddresses) }, ""},
		"more than a guest has":  {func(a *Acceptance) { a.Next = many(migration.MostAddresses + 1) }, "65 next addresses"},
		"none":                   {func(a *Acceptance) { a.Next = nil }, "no next address"},
		"one that is none":       {func(a *Acceptance) { a.Next = append(a.Next, migration.Address{Home: "rome"}) }, "an address that is none"},
		"of another IPv6 subnet": {func(a *Acceptance) { a.Next = append(a.Next, next("fd00:1::20/64")) }, "next address fd00:1::20"},
		"a shorter token":        {func(a *Acceptance) { a.Token = a.Token[1:] }, "a token of"},
		"as many ends":           {func(a *Acceptance) { a.Ends = slices.Repeat(a.Ends, migration.MostAddresses) }, ""},
		"more ends":              {func(a *Acceptance) { a.Ends = slices.Repeat(a.Ends, migration.MostAddresses+1) }, "65 ends for tunnels"},
	} {
		a := Acceptance{Token: make([]byte, probe.TokenLength), Next: []migration.Address{next("10.2.1.20/16")}, Ends: []netip.AddrPort{end}}
		c.change(&a)
		if err := a.Check(good().Plan, there); (err == nil) != (c.word == "") || err != nil && !strings.Contains(err.Error(), c.word) {
			t.Errorf("%s: %v, want %q", name, err, c.word)
		}
	}
}

// TestPreparedCheck: what a destination answers in prepare is refused where it cannot be meant.
func TestPreparedCheck(t *testing.T) {
	for name, c := range map[string]struct {
		transfer string
		change   func(*Prepared)
		word     string
	}{
		"good":                {"lanes", func(*Prepared) {}, ""},
		"no key":              {"lanes", func(p *Prepared) { p.TunnelKey = "secret" }, "tunnel key is not one"},
		"no end":              {"lanes", func(p *Prepared) { p.Tunnel = netip.AddrPort{} }, "end there is no address"},
		"as many tunnels":     {"lanes", func(p *Prepared) { p.Tunnels = make([]PathTunnel, migration.MostAddresses) }, ""},
		"more tunnels":        {"lanes", func(p *Prepared) { p.Tunnels = make([]PathTunnel, migration.MostAddresses+1) }, "65 tunnels for memory"},
		"as many at home":     {"lanes", func(p *Prepared) { p.Home = make([]netip.Addr, migration.MostAddresses) }, ""},
		"more at home":        {"lanes", func(p *Prepared) { p.Home = make([]netip.Addr, migration.MostAddresses+1) }, "65 addresses at home"},
		"a port by mptcp":     {"mptcp", func(p *Prepared) { p.Memory = "4444" }, ""},
		"no port by mptcp":    {"mptcp", func(*Prepared) {}, "the port for memory is not one"},
		"port 0 by mptcp":     {"mptcp", func(p *Prepared) { p.Memory = "0" }, "the port for memory is not one"},
		"no such port":        {"mptcp", func(p *Prepared) { p.Memory = "65536" }, "the port for memory is not one"},
		"an address by mptcp": {"mptcp", func(p *Prepared) { p.Memory = "tcp:10.0.0.1:4444" }, "the port for memory is not one"},
	} {
		p := Prepared{TunnelKey: strings.Repeat("A", 43) + "=", Tunnel: netip.MustParseAddrPort("10.0.0.1:700")}
		c.change(&p)
		if err := p.Check(migration.Plan{Transfer: c.transfer}); (err == nil) != (c.word == "") || err != nil && !strings.Contains(err.Error(), c.word) {
			t.Errorf("%s: %v, want %q", name, err, c.word)
		}
	}
}

// FuzzAnswers: what a destination may answer to check and prepare is refused, or can be used:
// and QEMU is told of nothing but an address and a port.
func FuzzAnswers(f *testing.F) {
	key := strings.Repeat("A", 43) + "="
	f.Add([]byte(`{"next":[{"prefix":"10.2.1.10/24"}],"token":"AAAAAAAAAAAAAAAAAAAAAA=="}`), []byte(`{"tunnel_key":"`+key+`","tunnel":"10.0.0.1:700","memory":"tcp:10.0.0.1:4444,mptcp=on"}`))
	f.Add([]byte(`{"next":[{}],"token":""}`), []byte(`{"tunnel_key":"`+key+`","tunnel":"10.0.0.1:700","memory":"exec:sh -c id"}`))
	f.Add([]byte(`null`), []byte(`{"tunnel_key":"`+key+`","tunnel":"10.0.0.1:700","memory":"tcp:10.0.0.1:4444,fd=3"}`))
	f.Fuzz(func(t *testing.T, check, prepare []byte) {
		plan := migration.Plan{Network: "mptcp", Transfer: "qemu-mptcp", To: "rome"}
		var a Acceptance
		if json.Unmarshal(check, &a) == nil && a.Check(plan, config.Neighbour{}) == nil {
			var token [probe.TokenLength]byte
			if copy(token[:], a.Token) != probe.TokenLength || len(migration.Bare(a.Next)) == 0 || len(a.Next) > migration.MostAddresses {
				t.Fatalf("taken: %+v", a)
			}
		}
		var p Prepared
		if json.Unmarshal(prepare, &p) == nil && p.Check(plan) == nil {
			at, _, _ := strings.Cut(strings.TrimPrefix(p.Memory, "tcp:"), ",")
			if _, err := netip.ParseAddrPort(at); err != nil || strings.Count(p.Memory, ",") > 1 || len(p.Tunnels) > migration.MostAddresses {
				t.Fatalf("taken: %+v", p)
			}
		}
	})
}

// TestAnswersAreChecked: an answer that would have QEMU run a command is refused.
func TestAnswersAreChecked(t *testing.T) {
	good := Prepared{TunnelKey: strings.Repeat("A", 43) + "=", Tunnel: netip.MustParseAddrPort("10.0.0.1:700")}
	for memory, ok := range map[string]bool{
		"tcp:10.0.0.1:4444": true, "tcp:[fe80::1%gwm1]:4444,mptcp=on": true, "exec:touch /x": false, "fd:3": false, "unix:/run/x": false,
		"tcp:10.0.0.1:4444,reconnect=1": false, "": false, "10.0.0.1:4444": false,
	} {
		p := good
		p.Memory = memory
		if err := p.Check(migration.Plan{Transfer: "qemu-mptcp"}); (err == nil) != ok {
			t.Errorf("memory to %q: %v", memory, err)
		}
	}
	if err := good.Check(migration.Plan{Transfer: "lanes"}); err != nil {
		t.Error(err)
	}
}

// TestMayEnd: a tunnel ends where the destination says that it may; one of an earlier release says nothing, and has it
// at its first.
func TestMayEnd(t *testing.T) {
	pairs := []peer.Path{}
	for _, local := range []string{"192.0.2.1", "192.0.2.2"} {
		for _, remote := range []string{"198.51.100.1", "198.51.100.2"} {
			pairs = append(pairs, peer.Path{Name: local[8:] + "-" + remote[11:], Local: netip.MustParseAddr(local), Remote: netip.MustParseAddr(remote)})
		}
	}
	for _, c := range []struct{ ends, want []string }{
		{nil, []string{"1-1", "2-1"}},
		{[]string{"198.51.100.1:7", "198.51.100.2:8"}, []string{"1-1", "2-1", "1-2", "2-2"}},
		{[]string{"198.51.100.2:8", "198.51.100.1:7"}, []string{"1-2", "2-2", "1-1", "2-1"}},
		{[]string{"198.51.100.2:8"}, []string{"1-2", "2-2"}},
		{[]string{"203.0.113.9:8"}, []string{"1-1", "2-1"}}, // prepare says whose configuration is to be mended
	} {
		a := Acceptance{Probe: 9}
		for _, end := range c.ends {
			a.Ends = append(a.Ends, netip.MustParseAddrPort(end))
		}
		if got := ways.Names(a.MayEnd(pairs)); !slices.Equal(got, c.want) {
			t.Errorf("ends %v: %v, want %v", c.ends, got, c.want)
		}
		for _, end := range a.Ends {
			if got := a.LikeTunnels(end.Addr()); got != end.Port() {
				t.Errorf("ends %v: port %d at %s", c.ends, got, end)
			}
		}
		if got := a.LikeTunnels(netip.MustParseAddr("198.51.100.3")); got != 9 {
			t.Errorf("ends %v: port %d at another", c.ends, got)
		}
	}
}
