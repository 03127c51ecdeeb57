package scenario

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/goccy/go-yaml/ast"

	"godwit/internal/units"
)

// Bounds of the lab's address plan.
const (
	maxSites   = 64
	maxUplinks = 8
	maxHosts   = 16
	maxClients = 60

	maxClientUplinks = 4
)

// Bounds of an emulated link.
const (
	minRate  = 8_000           // bit/s
	maxRate  = 100_000_000_000 // bit/s
	maxDelay = time.Minute
	maxQueue = 1 << 30 // bytes
)

var (
	siteKeys   = []string{"name", "guest_net", "uplinks", "hosts", "subnet_agent"}
	uplinkKeys = []string{"name", "carries", "rate", "delay", "jitter", "loss", "mtu", "queue"}
)

// The lab's own subnets: uplinks, clients behind NAT, access networks, clients at the
// internet; and what is never a guest's.
var taken = []struct {
	net  netip.Prefix
	what string
}{
	{netip.MustParsePrefix("100.64.0.0/10"), "the lab's uplinks and its clients behind NAT"},
	{netip.MustParsePrefix("198.18.0.0/15"), "the lab's clients"},
	{netip.MustParsePrefix("169.254.0.0/16"), "link-local addresses"},
	{netip.MustParsePrefix("127.0.0.0/8"), "loopback"},
	{netip.MustParsePrefix("0.0.0.0/8"), "this network"},
	{netip.MustParsePrefix("224.0.0.0/3"), "multicast and reserved addresses"},
	{netip.MustParsePrefix("fd64::/16"), "the lab's uplinks and its clients behind NAT"},
	{netip.MustParsePrefix("fd18::/15"), "the lab's clients"},
	{netip.MustParsePrefix("fe80::/10"), "link-local addresses"},
	{netip.MustParsePrefix("ff00::/8"), "multicast addresses"},
	{netip.MustParsePrefix("::/16"), "reserved addresses"},
}

const (
	allowedNet4 = "an IPv4 subnet from /16 to /28, such as 10.1.1.0/24"
	allowedNet6 = "an IPv6 subnet from /48 to /120, such as fd00:1:1::/64"
)

func (f *file) readSites(top *object) {
	nodes := f.entries(top, "sites", &f.sites)
	if top.isList("sites") && len(nodes) == 0 {
		top.wrong("sites", "the scenario has no sites", fmt.Sprintf("1 to %d", maxSites))
	}
	if len(nodes) == 0 {
		f.sites = append(f.sites, "")
	}
	if len(nodes) > maxSites {
		top.wrong("sites", fmt.Sprintf("%d sites", len(nodes)), fmt.Sprintf("at most %d", maxSites))
		f.sites = append(f.sites, "")
		return
	}
	for _, n := range nodes {
		f.readSite(n)
	}
}

func (f *file) readSite(n ast.Node) {
	o, ok := f.object(n, title("site", n), siteKeys)
	if !ok {
		f.define(&f.sites, o, "site", "")
		return
	}
	o.need("name", "guest_net", "uplinks")
	site := Site{Name: o.name("name")}
	before := f.faults()
	if site.Hosts = int(o.number("hosts", 1, 1, maxHosts)); f.faults() > before || o.unsure("hosts") {
		f.hosts = append(f.hosts, "") // it may have the host that somebody refers to
	}
	if slices.Contains([]string{Internet, "core", AllUplinks}, site.Name) {
		o.wrong("name", fmt.Sprintf("site name %q means something else", site.Name), "another name")
	}
	twice := !f.define(&f.sites, o, "site", site.Name)
	if site.Hosts > 1 && !twice && slices.Contains(f.hosts, site.Name) {
		o.wrong("name", fmt.Sprintf("%s has the name of a host of another", o.what), "another name")
	}
	for _, host := range site.HostNames() {
		clash := slices.Contains(f.hosts, host)
		if site.Hosts > 1 {
			clash = clash || slices.Contains(f.sites, host)
		}
		if clash && !twice {
			o.wrong("name", fmt.Sprintf("host %q of %s has the name of another", host, o.what), "another name")
		}
		f.hosts = append(f.hosts, host)
	}
	f.readSubnetAgent(o, &site)
	f.readGuestNet(o, &site)
	f.readUplinks(o, &site)
	f.out.Sites = append(f.out.Sites, site)
}

func (f *file) readSubnetAgent(o *object, site *Site) {
	if !o.has("subnet_agent") {
		return
	}
	switch site.SubnetAgent = o.name("subnet_agent"); {
	case site.SubnetAgent == "": // said already
	case o.unsure("hosts"):
	case site.Hosts == 1:
		o.wrong("subnet_agent", "subnet_agent of "+o.what+", which has one host", "hosts: 2 or more")
	case !slices.Contains(site.HostNames(), site.SubnetAgent):
		o.wrong("subnet_agent", fmt.Sprintf("subnet_agent %q is no host of %s", site.SubnetAgent, o.what), strings.Join(site.HostNames(), ", "))
	}
}

func (f *file) readGuestNet(o *object, site *Site) {
	if !o.has("guest_net") {
		return
	}
	before := f.faults()
	defer func() { f.misread[site.Name] = f.faults() > before }()
	net, ok := f.object(o.fields["guest_net"].node, "guest_net of "+o.what, []string{"v4", "v6"})
	if !ok {
		return
	}
	if !net.has("v4") && !net.has("v6") && !net.unsure("v4", "v6") {
		o.wrong("guest_net", net.what+" has neither v4 nor v6", "{v4: 10.1.1.0/24, v6: fd00:1:1::/64}, at least one of them")
	}
	site.GuestV4 = f.guestNet(net, "v4", 16, 28, allowedNet4)
	site.GuestV6 = f.guestNet(net, "v6", 48, 120, allowedNet6)
}

func (f *file) guestNet(o *object, key string, least, most int, allowed string) netip.Prefix {
	p := o.prefix(key, key == "v4", least, most, allowed)
	if !p.IsValid() {
		return p
	}
	for _, t := range taken {
		if t.net.Overlaps(p) {
			o.wrong(key, fmt.Sprintf("%s of %s overlaps %s (%s)", p, o.what, t.net, t.what), "another subnet")
			return netip.Prefix{}
		}
	}
	for _, s := range f.out.Sites {
		for _, other := range []netip.Prefix{s.GuestV4, s.GuestV6} {
			if other.IsValid() && other.Overlaps(p) {
				o.wrong(key, fmt.Sprintf("%s of %s overlaps %s of site %s", p, o.what, other, s.Name), "subnets that have no address in common")
			}
		}
	}
	return p
}

func (f *file) readUplinks(o *object, site *Site) {
	var names []string
	nodes := f.entries(o, "uplinks", &names)
	defer func() { f.uplinks[site.Name] = names }()
	if o.isList("uplinks") && len(nodes) == 0 || len(nodes) > maxUplinks {
		o.wrong("uplinks", fmt.Sprintf("%s has %d uplinks", o.what, len(nodes)), fmt.Sprintf("1 to %d", maxUplinks))
		names = append(names, "")
		return
	}
	guest := false
	for i, n := range nodes {
		u, ok := f.readUplink(n, o.what, i == 0, &names)
		if !ok {
			return
		}
		guest = guest || u.Carries != CarriesMigration
		site.Uplinks = append(site.Uplinks, u)
	}
	if len(nodes) > 0 && !guest {
		o.wrong("uplinks", "no uplink of "+o.what+" carries guest traffic", "carries: guest or both on at least one")
	}
}

func (f *file) readUplink(n ast.Node, of string, first bool, names *[]string) (Uplink, bool) {
	o, ok := f.object(n, title("uplink", n)+" of "+strings.TrimPrefix(of, "site "), uplinkKeys)
	if !ok {
		f.define(names, o, "uplink", "")
		return Uplink{}, false
	}
	o.need("name")
	u := Uplink{Name: o.name("name")}
	if u.Name == AllUplinks {
		o.wrong("name", `uplink name "all" means every uplink`, "another name")
	}
	f.define(names, o, "uplink", u.Name)
	standard := CarriesMigration
	if first {
		standard = CarriesBoth
	}
	u.Carries = Carries(o.word("carries", string(standard), "guest", "migration", "both"))
	u.Rate, u.Delay = o.linkRate(), o.linkDelay()
	u.Jitter = o.duration("jitter", 0)
	u.Jitter = min(u.Jitter, u.Delay) // a link's delay is never below zero
	u.Loss = o.percent("loss")
	u.MTU = int(o.number("mtu", 1500, 1280, 9000)) // every link carries IPv6, which needs 1280
	u.Queue = f.bytes(o, "queue")
	if o.has("queue") && (u.Queue == 0 || u.Queue > maxQueue) { // 0 would be the default
		o.wrong("queue", fmt.Sprintf("queue of %s is %d bytes", o.what, u.Queue), "from 1 byte to 1GiB")
	}
	return u, true
}

// linkRate reads the rate of a link; 0 is unlimited.
func (o *object) linkRate() int64 {
	rate := o.rate("rate")
	if rate != 0 && (rate < minRate || rate > maxRate) {
		o.wrong("rate", fmt.Sprintf("rate of %s is %d bit/s", o.what, rate), "from 8kbit to 100gbit")
	}
	return rate
}

func (o *object) linkDelay() time.Duration {
	delay := o.duration("delay", 0)
	if delay > maxDelay {
		o.wrong("delay", fmt.Sprintf("delay of %s is %s", o.what, delay), "at most 1m")
	}
	return delay
}

// bytes reads a size, or a whole number, which is bytes here.
func (f *file) bytes(o *object, key string) int64 {
	fl, ok := o.fields[key]
	if !ok {
		return 0
	}
	if _, isInt := fl.node.(*ast.IntegerNode); isInt {
		return o.number(key, 1, 1, maxQueue)
	}
	return measure(o, key, 1, "bytes, such as 65536 or 64KiB", units.Size)
}
