package talk

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"godwit/agent/care"
	"godwit/agent/config"
	"godwit/migration"
	"godwit/netstate"
)

// TestMostAddresses: a guest keeps what something needs of its old addresses beside its next ones, and moves as long as
// what an agent remembers of it then can be read by the next one.
func TestMostAddresses(t *testing.T) {
	d := config.Description{Name: "web", Memory: 1 << 28, NICs: []config.NIC{{MAC: "52:54:00:00:01:0a"}, {MAC: "52:54:00:00:01:0b"}}}
	addresses := func(format string, n int) (out []migration.Address) {
		for i := range n {
			out = append(out, migration.Address{Prefix: netip.MustParsePrefix(fmt.Sprintf(format, i+1)), Home: "rome"})
		}
		return out
	}
	for held, moves := range map[int]bool{1: true, migration.MostAddresses - 2: true, migration.MostAddresses - 1: false, migration.MostAddresses: false} {
		plan := migration.Plan{Guest: d.Name, Network: "mptcp", Held: addresses("10.1.1.%d/24", held), Next: addresses("10.2.1.%d/24", 2)}
		err := CheckPlan(plan, d)
		has := care.Held{Description: d, Dir: "/run/guests/web-2", Addresses: slices.Concat(plan.Next, plan.Held)}
		if read := has.Check(); (err == nil) != moves || err == nil && read != nil {
			t.Errorf("with %d addresses: %v; what is remembered then: %v", held, err, read)
		}
		plan.Network, plan.Next = "tunnel", plan.Held
		if err := CheckPlan(plan, d); err != nil {
			t.Errorf("with %d addresses, which it keeps: %v", held, err)
		}
	}
	if err := CheckPlan(migration.Plan{Guest: d.Name, Paths: make([][2]netip.Addr, migration.MostAddresses+1)}, d); err == nil {
		t.Error("a plan of more paths was taken")
	}
}

// good is a preparation of which nothing is wrong.
func good() Preparation {
	held := migration.Address{Prefix: netip.MustParsePrefix("10.1.1.20/24"), Gateway: netip.MustParseAddr("10.1.1.1"), Home: "paris"}
	next := migration.Address{Prefix: netip.MustParsePrefix("10.2.1.20/24"), Gateway: netip.MustParseAddr("10.2.1.1"), Home: "rome"}
	return Preparation{
		Description: config.Description{Name: "web", Memory: 256 << 20, NICs: []config.NIC{{MAC: "52:54:00:00:01:0a"}, {MAC: "52:54:00:00:01:0b"}}},
		Plan: migration.Plan{
			ID: "m-00000001", Epoch: 3, Guest: "web", From: "paris", To: "rome", Network: "mptcp",
			Held: []migration.Address{held}, Next: []migration.Address{next},
		},
	}
}

// TestPreparationCheck: what another host says of a guest that is to come is refused where it cannot be meant.
func TestPreparationCheck(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*Preparation)
		word   string
	}{
		"good": {func(*Preparation) {}, ""},
		"keeps its address, 1 NIC": {func(p *Preparation) {
			p.Plan.Network, p.Plan.Next, p.Description.NICs = "tunnel", nil, p.Description.NICs[:1]
		}, ""},
		"a path as its name":       {func(p *Preparation) { p.Plan.Guest, p.Description.Name = "../x", "../x" }, "name"},
		"of another guest":         {func(p *Preparation) { p.Plan.Guest = "../x" }, "description"},
		"no such NIC":              {func(p *Preparation) { p.Plan.Active = 2 }, "active NIC 2 of 2"},
		"a NIC before the first":   {func(p *Preparation) { p.Plan.Active = -1 }, "active NIC -1"},
		"no next address":          {func(p *Preparation) { p.Plan.Next = nil }, "no next address"},
		"no address":               {func(p *Preparation) { p.Plan.Held = nil }, "0 addresses"},
		"an address that is none":  {func(p *Preparation) { p.Plan.Held = append(p.Plan.Held, migration.Address{}) }, "none"},
		"a home that is no word":   {func(p *Preparation) { p.Plan.Held[0].Home = "x\x1b[2J" }, "which is no host's name"},
		"a home without an end":    {func(p *Preparation) { p.Plan.Held[0].Home = strings.Repeat("x", 513) }, "which is no host's name"},
		"a home of another tongue": {func(p *Preparation) { p.Plan.Held[0].Home = "montréal-1" }, ""},
		"no home":                  {func(p *Preparation) { p.Plan.Held[0].Home = "" }, ""},
		"a subnet agent of words":  {func(p *Preparation) { p.Plan.Held[0].SubnetAgent = "x\ny" }, "which is no host's name"},
		"a next home of words":     {func(p *Preparation) { p.Plan.Next[0].Home = "x y" }, "which is no host's name"},
		"options as a processor":   {func(p *Preparation) { p.Facts.CPU = "max,-avx2" }, "CPU model"},
		"too long for a journal":   {func(p *Preparation) { p.Description.Start = slices.Repeat([]string{"-device"}, 30000) }, "shorten"},
		"a thousand addresses":     {func(p *Preparation) { p.Plan.Held = make([]migration.Address, 1000) }, "1000 addresses"},
		"a thousand next ones":     {func(p *Preparation) { p.Plan.Next = make([]migration.Address, 1000) }, "1000 next ones"},
		"more than it may keep": {func(p *Preparation) {
			p.Plan.Network, p.Plan.Next, p.Plan.Held = "tunnel", nil, nil
			for _, addr := range addressesFrom(netip.MustParseAddr("10.1.1.20"), migration.MostAddresses+1) {
				p.Plan.Held = append(p.Plan.Held, migration.Address{Prefix: netip.PrefixFrom(addr, 16), Home: "paris"})
			}
		}, "65 addresses"},
		"no NIC for the next":   {func(p *Preparation) { p.Description.NICs = p.Description.NICs[:1] }, "no NIC for it"},
		"a boot's id":           {func(p *Preparation) { p.Boot = strings.Repeat("b", care.LongestBoot) }, ""},
		"a longer boot's id":    {func(p *Preparation) { p.Boot = strings.Repeat("b", care.LongestBoot+1) }, "a boot id of 65 bytes"},
		"tunnels":               {func(p *Preparation) { p.MemoryTunnels = make([]PathTunnel, migration.MostAddresses) }, ""},
		"more tunnels":          {func(p *Preparation) { p.MemoryTunnels = make([]PathTunnel, migration.MostAddresses+1) }, "65 tunnels for memory"},
		"channels":              {func(p *Preparation) { p.Channels = MostChannels }, ""},
		"more channels":         {func(p *Preparation) { p.Channels = MostChannels + 1 }, "5 channels"},
		"channels below none":   {func(p *Preparation) { p.Channels = -1 }, "-1 channels"},
		"inner addresses":       {func(p *Preparation) { p.InnerUsed = make([]netip.Prefix, MostInner) }, ""},
		"more inner addresses":  {func(p *Preparation) { p.InnerUsed = make([]netip.Prefix, MostInner+1) }, "513 inner addresses"},
		"a router that is none": {func(p *Preparation) { p.Routers = make([]netstate.Advertisement, 1) }, "router"},
		"none to be given up":   {func(p *Preparation) { p.ToDrop = make([]netip.Addr, 1) }, "to be given up"},
	} {
		p := good()
		c.change(&p)
		err := p.Check()
		if (err == nil) != (c.word == "") || err != nil && !strings.Contains(err.Error(), c.word) {
			t.Errorf("%s: %v, want %q", name, err, c.word)
		}
	}
}
