package topo

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"godwit/lab/wan"

	"github.com/google/go-cmp/cmp"
)

func prefix(s string) netip.Prefix { return netip.MustParsePrefix(s) }
func addr(s string) netip.Addr     { return netip.MustParseAddr(s) }

var compareAddrs = cmp.Comparer(func(a, b netip.Addr) bool { return a == b })
var comparePrefixes = cmp.Comparer(func(a, b netip.Prefix) bool { return a == b })

func TestHostsOfThePlan(t *testing.T) {
	spec := threeSites("beef").defaults()
	got := spec.hosts(0)[1]
	want := Host{
		Name: "montreal-2", Site: "montreal", Namespace: "gwbeef-h-montreal-2", Bridge: "br-guest", LAN: "lan0",
		Uplinks: []HostUplink{
			{Name: "public", Device: "up0", Carries: "both", V4: addr("100.64.0.12"), V6: addr("fd64:0:0::12"),
				GatewayV4: addr("100.64.0.1"), GatewayV6: addr("fd64:0:0::1"), Rate: 100e6},
			{Name: "private", Device: "up1", Carries: "migration", V4: addr("100.64.1.12"), V6: addr("fd64:0:1::12"),
				GatewayV4: addr("100.64.1.1"), GatewayV6: addr("fd64:0:1::1")},
		},
		GuestV4: prefix("10.1.1.0/24"), GuestV6: prefix("fd00:1:1::/64"),
		GatewayV4: addr("10.1.1.1"), GatewayV6: addr("fd00:1:1::1"),
	}
	if diff := cmp.Diff(want, got, compareAddrs, comparePrefixes); diff != "" {
		t.Error(diff)
	}
	if got := spec.hosts(1)[0]; got.Name != "sanjose" || got.GuestV6.IsValid() || got.GatewayV6.IsValid() {
		t.Errorf("host of a site of one, without IPv6: %+v", got)
	}
	nodes := strings.Join(spec.nodeNames(), " ")
	if want := "core r-montreal h-montreal-1 h-montreal-2 r-sanjose h-sanjose r-paris h-paris c-phone c-tablet nat-tablet c-laptop"; nodes != want {
		t.Errorf("nodes %s", nodes)
	}
}

func TestGuestUplinkIsTheFirstThatCarriesGuests(t *testing.T) {
	for _, c := range []struct {
		carries []string
		want    int
	}{
		{[]string{"both"}, 0}, {[]string{"migration", "guest"}, 1}, {[]string{"migration", "both", "guest"}, 1}, {[]string{"migration"}, -1},
	} {
		var site Site
		for _, carries := range c.carries {
			site.Uplinks = append(site.Uplinks, Uplink{Carries: carries})
		}
		if got := site.guestUplink(); got != c.want {
			t.Errorf("%v: %d, want %d", c.carries, got, c.want)
		}
	}
}

func TestAddressesOfThePlan(t *testing.T) {
	show := func(v4, v6 netip.Prefix) string { return v4.String() + " " + v6.String() }
	for _, c := range []struct{ got, want string }{
		{show(uplinkNet(2, 1, 11)), "100.66.1.11/24 fd64:2:1::11/64"},
		{show(accessNet(1, 10)), "198.18.1.10/24 fd18:1::10/64"},
		{show(internetNet(3, 0, 2)), "198.19.3.2/24 fd19:3::2/64"},
		{show(internetNet(3, 2, 2)), "198.19.131.2/24 fd19:131::2/64"},
		{show(privateNet(59, 3, 2)), "100.123.131.2/24 fd64:123:131::2/64"},
		{show(privateNet(3, 0, 2)), "100.67.128.2/24 fd64:67:128::2/64"},
	} {
		if c.got != c.want {
			t.Errorf("%s, want %s", c.got, c.want)
		}
	}
}

func TestCheck(t *testing.T) {
	for name, c := range map[string]struct {
		spoil func(*Spec)
		want  string
	}{
		"fine":              {func(*Spec) {}, ""},
		"id":                {func(s *Spec) { s.ID = "12345" }, "id"},
		"no sites":          {func(s *Spec) { s.Sites = nil }, "0 sites"},
		"two of a name":     {func(s *Spec) { s.Sites[2].Name = "sanjose" }, "sanjose"},
		"host like a site":  {func(s *Spec) { s.Sites[2].Name = "montreal-2" }, "montreal-2"},
		"named internet":    {func(s *Spec) { s.Sites[2].Name = "internet" }, "internet"},
		"name with a slash": {func(s *Spec) { s.Sites[1].Name = "a/b" }, "name"},
		"overlap":           {func(s *Spec) { s.Sites[1].GuestV4 = prefix("10.1.0.0/16") }, "overlaps"},
		"lab's own range":   {func(s *Spec) { s.Sites[1].GuestV4 = prefix("100.64.7.0/24") }, "100.64.0.0/10"},
		"a common range":    {func(s *Spec) { s.Sites[1].GuestV4 = prefix("192.168.1.0/24") }, ""},
		"no guest net":      {func(s *Spec) { s.Sites[1].GuestV4 = netip.Prefix{} }, "guest net"},
		"v4 as v6":          {func(s *Spec) { s.Sites[1].GuestV6 = prefix("10.9.0.0/24") }, "IPv6"},
		"no uplink":         {func(s *Spec) { s.Sites[1].Uplinks = nil }, "uplinks"},
		"uplink twice":      {func(s *Spec) { s.Sites[0].Uplinks[1].Name = "public" }, "public"},
		"none for guests":   {func(s *Spec) { s.Sites[1].Uplinks[0].Carries = "migration" }, "guest traffic"},
		"carries nonsense":  {func(s *Spec) { s.Sites[1].Uplinks[0].Carries = "x" }, "none of"},
		"bad link":          {func(s *Spec) { s.Sites[1].Uplinks[0].Link = wan.Link{Loss: 3} }, "loss"},
		"client nowhere":    {func(s *Spec) { s.Clients[0].At = "moon" }, "moon"},
		"client twice":      {func(s *Spec) { s.Clients[0].Name = "laptop" }, "laptop"},
		"client mptcp":      {func(s *Spec) { s.Clients[0].MPTCP = "most" }, "most"},
		"too many uplinks":  {func(s *Spec) { s.Clients[0].Uplinks = 5 }, "uplinks"},
		"too many accepted": {func(s *Spec) { s.Clients[0].AddAddrAccepted = 9 }, "accepted"},
	} {
		spec := threeSites("beef").defaults()
		c.spoil(&spec)
		err := spec.Check()
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want something about %q", name, err, c.want)
		}
	}
}

func TestDefaultsLeaveTheCallersSpecAlone(t *testing.T) {
	spec := threeSites("beef")
	_ = spec.defaults()
	if spec.Sites[0].Uplinks[0].Carries != "" || spec.Clients[0].Uplinks != 0 {
		t.Error("the caller's spec was changed")
	}
}

func TestOctetsAreNeverGivenTwice(t *testing.T) {
	topo := &Topo{octets: map[string]int{}}
	seen := []int{}
	for i := range 150 {
		n, err := topo.octet("net", 10, true)
		if err != nil || slices.Contains(seen, n) || n < 2 || n > 254 {
			t.Fatalf("%d-th: %d, %v", i, n, err)
		}
		seen = append(seen, n)
	}
	for range 254 {
		_, _ = topo.octet("net", 10, false)
	}
	if _, err := topo.octet("net", 10, false); err == nil {
		t.Error("more addresses than the network has")
	}
}

// TestEveryClientFindsANumber: an access network has room for all clients that there may be, each with all its uplinks.
func TestEveryClientFindsANumber(t *testing.T) {
	topo := &Topo{octets: map[string]int{}}
	whose := map[int]string{}
	for k := range maxClients {
		for j := range maxClientUplinks {
			number, err := topo.octet("access 0", 10+k, j == 0)
			if err != nil {
				t.Fatalf("client %d, uplink %d: %v", k, j, err)
			}
			if other := whose[number]; other != "" {
				t.Errorf("client %d, uplink %d has %d as %s", k, j, number, other)
			}
			whose[number] = fmt.Sprintf("client %d, uplink %d", k, j)
		}
	}
}
