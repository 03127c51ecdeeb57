package scenario

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/goccy/go-yaml/ast"
)

var (
	clientKeys  = []string{"name", "at", "mptcp", "nat", "uplinks", "add_addr_accepted"}
	guestKeys   = []string{"name", "site", "memory", "vcpus", "disk", "disks", "image", "agent", "run", "network"}
	trafficKeys = []string{"name", "client", "guest", "kind", "every", "rate", "connections", "family", "start", "command", "silent"}

	networks = []string{"auto", "mptcp", "drain", "tunnel"}
	kinds    = []string{"ticks", "download", "upload", "requests", "udp", "iperf3", "exec"}
)

// maxEvery is the longest time between two records that a client keeps to.
const maxEvery = 24 * time.Hour

// datagramEvery is the time between two datagrams of a flow that does not say it: a guest that is
// emulated keeps up with 500 a second beside its other work.
const datagramEvery = 2 * time.Millisecond

// Bounds of a guest.
const (
	minMemory = 112 << 20 // below it the image's kernel ends for want of memory
	minDebian = 384 << 20
	maxMemory = 1 << 40
	minDisk   = 1 << 20
	mostDisks = 8 // a guest has slots for so many
	maxDisk   = 1 << 44
	sector    = 512
)

func (f *file) readClient(n ast.Node) {
	o, ok := f.object(n, title("client", n), clientKeys)
	if !ok {
		f.define(&f.clients, o, "client", "")
		return
	}
	o.need("name")
	c := Client{Name: o.name("name"), At: Internet}
	f.define(&f.clients, o, "client", c.Name)
	if len(f.clients) == maxClients+1 {
		o.wrong("name", fmt.Sprintf("more than %d clients", maxClients), "")
	}
	if o.has("at") {
		c.At = o.known("at", "place", union(f.sites, []string{Internet}))
	}
	c.MPTCP = o.word("mptcp", "full", "full", "backup", "single", "off")
	c.NAT = o.flag("nat")
	c.UplinkNames = f.clientUplinks(o)
	c.Uplinks = len(c.UplinkNames)
	c.AddAddrAccepted = int(o.number("add_addr_accepted", 8, 0, 8))
	f.out.Clients = append(f.out.Clients, c)
}

// clientUplinks reads a number, or a list of names or of {name}.
func (f *file) clientUplinks(o *object) []string {
	fl, ok := o.fields["uplinks"]
	if !ok {
		return []string{"eth0"}
	}
	var names []string
	switch fl.node.(type) {
	case *ast.SequenceNode:
	case *ast.IntegerNode:
		for i := range o.number("uplinks", 1, 1, maxClientUplinks) {
			names = append(names, fmt.Sprintf("eth%d", i))
		}
		return names
	default:
		o.wrongType("uplinks", fmt.Sprintf("a whole number from 1 to %d, or a list of names", maxClientUplinks))
		return nil
	}
	nodes := o.list("uplinks")
	if len(nodes) == 0 || len(nodes) > maxClientUplinks {
		o.wrong("uplinks", fmt.Sprintf("%s has %d uplinks", o.what, len(nodes)), fmt.Sprintf("1 to %d", maxClientUplinks))
		return nil
	}
	for _, n := range nodes {
		if _, isMap := pairs(n); !isMap {
			u := f.entry(o, "name", n)
			u.what = "uplink of " + o.what
			f.define(&names, u, "uplink", u.name("name"))
			continue
		}
		u, _ := f.object(n, "uplink of "+o.what, []string{"name"})
		if u.need("name") {
			f.define(&names, u, "uplink", u.name("name"))
		}
	}
	return names
}

func (f *file) readGuest(n ast.Node) {
	o, ok := f.object(n, title("guest", n), guestKeys)
	if !ok {
		f.define(&f.guests, o, "guest", "")
		return
	}
	o.need("name", "site")
	g := Guest{Name: o.name("name")}
	f.define(&f.guests, o, "guest", g.Name)
	if o.has("site") {
		g.Site = o.known("site", "site", f.places)
		f.house(o, g.Site)
	}
	f.image(o, &g)
	if o.has("memory") && (g.Memory < minMemory || g.Memory > maxMemory || g.Memory%(1<<20) != 0) {
		o.wrong("memory", fmt.Sprintf("memory of %s is %d bytes", o.what, g.Memory), "whole MiB from 112MiB to 1TiB")
	}
	g.VCPUs = int(o.number("vcpus", 1, 1, 64))
	g.Disks = f.disks(o)
	g.Network = o.word("network", "auto", networks...)
	g.Run = f.runLines(o, &g)
	f.out.Guests = append(f.out.Guests, g)
}

// unhoused are the addresses of an IPv4 subnet that no guest has: its own, the router's, and the one for broadcasts.
const unhoused = 3

// house counts a guest of a site or host, and reports the first for which the site's subnet has no address.
func (f *file) house(o *object, place string) {
	site, ok := f.out.SiteOf(place)
	if !ok || place == "" || !site.GuestV4.IsValid() {
		return
	}
	room := 1<<(32-site.GuestV4.Bits()) - unhoused
	if f.housed[site.Name]++; f.housed[site.Name] == room+1 {
		o.wrong("site", fmt.Sprintf("%s is one too many for %s of site %s", o.what, site.GuestV4, site.Name), fmt.Sprintf("at most %d guests there", room))
	}
}

// image reads what the guest boots and who answers in it, and its memory, which a full
// system needs more of.
func (f *file) image(o *object, g *Guest) {
	g.Image = o.word("image", "tiny", "tiny", "debian12", "debian13")
	g.Agent = o.word("agent", "godwit", "godwit", "qga", "dhcp")
	if g.Image == "tiny" {
		g.Memory = o.memory(256 << 20)
		if g.Agent != "godwit" && !o.unsure("image") {
			o.wrong("agent", "agent of "+o.what+" is "+g.Agent+", which the image tiny does not have", "agent: "+g.Agent+" with image debian12 or debian13")
		}
		return
	}
	if g.Agent == "dhcp" && o.has("run") {
		o.wrong("run", "nobody in "+o.what+" can be asked to run something (agent: dhcp)", "no run, or another agent")
	}
	if site, ok := f.out.SiteOf(g.Site); ok && g.Agent == "dhcp" && !f.misread[site.Name] && site.GuestV6.IsValid() && !site.GuestV4.IsValid() {
		o.wrong("agent", fmt.Sprintf("agent of %s is dhcp, which gives IPv4 addresses alone, and site %s has no v4 guest_net", o.what, site.Name), "a site with one, or another agent")
	}
	g.Memory = o.memory(512 << 20)
	if g.Memory < minDebian {
		o.wrong("memory", fmt.Sprintf("memory of %s is %d MiB", o.what, g.Memory>>20), fmt.Sprintf("%d MiB or more with image %s", minDebian>>20, g.Image))
	}
}

// memory is that of a guest, bytes; one that cannot be read, or found, has room for all that the guest writes.
func (o *object) memory(standard int64) int64 {
	if o.has("memory") || o.unsure("memory") {
		standard = maxMemory
	}
	return o.size("memory", standard)
}

// disks reads their sizes, bytes; one that is wrong, or may be there, has room for all that the guest writes.
func (f *file) disks(o *object) []int64 {
	var sizes []int64
	switch {
	case o.has("disk") && o.has("disks"):
		o.r.wrong(o.fields["disks"].key, o.what+" has both disk and disks", "one of them")
		sizes = []int64{maxDisk}
	case o.unsure("disk", "disks"):
		sizes = []int64{maxDisk}
	case o.has("disk"):
		sizes = []int64{o.size("disk", maxDisk)}
	case o.has("disks"):
		nodes := o.list("disks")
		if !o.isList("disks") {
			sizes = []int64{maxDisk}
		}
		if len(nodes) > mostDisks {
			o.wrong("disks", fmt.Sprintf("%s has %d disks", o.what, len(nodes)), fmt.Sprintf("%d at most", mostDisks))
			nodes = nodes[:mostDisks]
		}
		for _, n := range nodes {
			sizes = append(sizes, f.entry(o, "disk", n).size("disk", maxDisk))
		}
	}
	for i, s := range sizes {
		if s > 0 && s < maxDisk { // up to whole sectors, which 100MB are not
			sizes[i] = (s + sector - 1) / sector * sector
		}
		if s < minDisk || s > maxDisk {
			key := "disk"
			if o.has("disks") {
				key = "disks"
			}
			o.wrong(key, fmt.Sprintf("a disk of %s has %d bytes", o.what, s), "1MiB to 16TiB")
		}
	}
	return sizes
}

// entry looks at one entry of a list as if it were the value of a key, so that
// the same readers read it.
func (f *file) entry(o *object, key string, n ast.Node) *object {
	return &object{r: &f.reader, what: o.what, at: at(n), fields: map[string]field{key: {key: at(n), node: n}}}
}

func (f *file) readTraffic(n ast.Node) {
	o, ok := f.object(n, title("traffic", n), trafficKeys)
	if !ok {
		f.define(&f.traffic, o, "traffic", "")
		return
	}
	o.need("name", "client", "guest", "kind")
	t := Traffic{Name: o.name("name")}
	f.define(&f.traffic, o, "traffic", t.Name)
	t.Client = o.known("client", "client", f.clients)
	t.Guest = o.known("guest", "guest", f.guests)
	t.Kind = o.word("kind", "", kinds...)
	t.Every = o.duration("every", 10*time.Millisecond)
	if o.has("every") && (t.Every < time.Millisecond || t.Every > maxEvery) {
		o.wrong("every", fmt.Sprintf("every of %s is %s", o.what, t.Every), "1ms to 24h")
	}
	if t.Rate = o.rate("rate"); t.Rate > 0 && !o.has("every") && (t.Kind == "ticks" || t.Kind == "requests") {
		t.Every = 0
	}
	most := int64(10000)
	if t.Kind == "iperf3" {
		most = 128 // what iperf3 takes itself
	}
	t.Connections = int(o.number("connections", 1, 1, most))
	if t.Kind == "exec" { // a command is one, whatever it opens
		t.Connections = 1
	}
	if t.Kind == "udp" && !o.has("every") {
		t.Every = min(max(t.Every, time.Duration(t.Connections)*datagramEvery), time.Second)
	}
	if t.Start = o.duration("start", 0); f.lateBy(t.Start) {
		o.wrong("start", fmt.Sprintf("%s starts at %s, not before the end, timeout %s", o.what, t.Start, f.out.End.Timeout), "a time before end.timeout")
	}
	t.Silent = o.flag("silent")
	f.family(o, &t)
	f.served(o, t)
	f.command(o, &t)
	f.idle(o, t.Kind)
	f.out.Traffic = append(f.out.Traffic, t)
}

// idleKeys are keys that some kinds of traffic do not heed, with those that do.
var idleKeys = []struct {
	key   string
	heeds []string
}{
	{"every", []string{"ticks", "requests", "udp"}},
	{"rate", allButExec},
	{"connections", allButExec},
	{"silent", []string{"ticks", "requests"}},
}

var allButExec = []string{"ticks", "download", "upload", "requests", "udp", "iperf3"}

// idle notes the keys that a flow of that kind does not heed.
func (f *file) idle(o *object, kind string) {
	for _, k := range idleKeys {
		if o.has(k.key) && slices.Contains(kinds, kind) && !slices.Contains(k.heeds, kind) {
			at := o.fields[k.key].key
			f.out.Idle = append(f.out.Idle, Error{File: f.out.File, Line: at.line, Col: at.col,
				What: fmt.Sprintf("%s of %s does nothing with kind %s, but with %s", k.key, o.what, kind, join(k.heeds))})
		}
	}
}

// family checks that the guest has an address of it at home. The standard is v4
// where there is one.
func (f *file) family(o *object, t *Traffic) {
	g, _ := f.out.Guest(t.Guest)
	site, ok := f.out.SiteOf(g.Site)
	t.Family = "v4"
	if ok && !site.GuestV4.IsValid() {
		t.Family = "v6"
	}
	t.Family = o.word("family", t.Family, "v4", "v6")
	if f.misread[site.Name] || !site.GuestV4.IsValid() && !site.GuestV6.IsValid() { // that is wrong already
		return
	}
	if ok && (t.Family == "v4" && !site.GuestV4.IsValid() || t.Family == "v6" && !site.GuestV6.IsValid()) {
		o.wrong("family", fmt.Sprintf("family of %s is %s, but site %s of guest %s has no %s guest_net",
			o.what, t.Family, site.Name, t.Guest, t.Family), "a family of that site's guest_net")
		return
	}
	if t.Family == "v6" && site.GuestV4.IsValid() && g.Agent == "dhcp" { // else its agent is wrong already
		o.wrong("family", fmt.Sprintf("family of %s is v6, but guest %s has IPv4 addresses alone (agent: dhcp)", o.what, t.Guest), "v4, or a guest with another agent")
	}
}

// served checks that the guest has a server for it: one of iperf3 serves one flow, and a guest in which nobody can be
// asked to run another has that alone.
func (f *file) served(o *object, t Traffic) {
	g, _ := f.out.Guest(t.Guest)
	if t.Kind == "iperf3" && g.Agent == "dhcp" &&
		slices.ContainsFunc(f.out.Traffic, func(other Traffic) bool { return other.Kind == t.Kind && other.Guest == t.Guest }) {
		o.wrong("kind", fmt.Sprintf("%s is another of kind iperf3 to guest %s, in which nobody can be asked to run a second server (agent: dhcp)", o.what, t.Guest),
			"one of them, or a guest with another agent")
	}
}

func (f *file) command(o *object, t *Traffic) {
	t.Command, _ = o.command("command")
	switch {
	case t.Kind == "exec" && strings.TrimSpace(t.Command) == "" && !o.unsure("command"):
		o.r.wrong(o.place("command"), o.what+" of kind exec has no command", `command: "…", run in the client's namespace with $GUEST set`)
	case t.Kind != "exec" && o.has("command"):
		o.r.wrong(o.fields["command"].key, "command of "+o.what+" without kind exec", "command with kind: exec only")
	}
}
