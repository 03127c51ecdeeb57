package scenario

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/goccy/go-yaml/ast"

	"godwit/internal/units"
)

var (
	stepKinds = []string{"migrate", "abort", "move", "cut", "degrade", "kill", "exec", "evacuate"}
	stepKeys  = append([]string{"at"}, stepKinds...)

	migrateKeys = []string{"guest", "to", "mode", "transfer", "network", "downtime", "bandwidth", "throttle", "insecure_transfer"}
	modes       = []string{"auto", "precopy", "hybrid", "postcopy", "stopcopy"}
	transfers   = []string{"auto", "lanes", "mptcp", "qemu-tcp", "qemu-mptcp", "qemu-multifd", "qemu-xbzrle"}
)

// maxDowntime is the longest budget that an agent takes.
const maxDowntime = time.Minute

func (f *file) readStep(n ast.Node) {
	o, ok := f.object(n, "step", stepKeys)
	if !ok {
		return
	}
	s := Step{Line: o.at.line}
	o.need("at")
	s.At = f.readAt(o)
	var found []string
	for _, k := range stepKinds {
		if o.has(k) {
			found = append(found, k)
		}
	}
	if len(found) == 0 && o.odd > 0 {
		return
	}
	if len(found) != 1 {
		what := "step does nothing"
		if len(found) > 1 {
			what = "step does several things: " + join(found)
		}
		f.wrong(o.at, what, "exactly one of "+join(stepKinds))
		return
	}
	f.readAction(&s, o.fields[found[0]].node, found[0])
	f.out.Steps = append(f.out.Steps, s)
}

func (f *file) readAt(o *object) At {
	if !o.has("at") {
		return At{}
	}
	node := o.fields["at"].node
	if _, isMap := pairs(node); !isMap {
		at := At{Time: measure(o, "at", 0, units.AllowedDuration+", or {guest, phase, plus}", units.Duration)}
		if f.lateBy(at.Time) {
			o.wrong("at", fmt.Sprintf("step at %s is not before the end, timeout %s", at.Time, f.out.End.Timeout), "a time before end.timeout")
		}
		return at
	}
	m, _ := f.object(node, "at", []string{"guest", "phase", "plus"})
	m.need("guest", "phase")
	at := At{
		Guest: m.known("guest", "guest", f.guests),
		Phase: m.word("phase", "", Phases...),
		Plus:  m.duration("plus", 0),
	}
	if f.lateBy(at.Plus) {
		m.wrong("plus", fmt.Sprintf("plus of %s is not before the end, timeout %s", at.Plus, f.out.End.Timeout), "a time before end.timeout")
	}
	return at
}

func (f *file) readAction(s *Step, n ast.Node, kind string) {
	switch kind {
	case "migrate":
		s.Migrate = f.readMigrate(n)
	case "abort":
		if o, ok := f.object(n, kind, []string{"guest"}); ok && o.need("guest") {
			s.Abort = &Abort{Guest: o.known("guest", "guest", f.guests)}
		}
	case "move":
		if o, ok := f.object(n, kind, []string{"client", "to", "gap"}); ok && o.need("client", "to") {
			s.MoveClient = f.readMoveClient(o, s.At.earliest())
		}
	case "cut":
		s.Cut = f.readCut(n)
	case "degrade":
		s.Degrade = f.readDegrade(n)
	case "kill":
		s.Kill = f.readKill(n, s.At.earliest())
	case "exec":
		if o, ok := f.object(n, kind, []string{"guest", "command"}); ok && o.need("guest", "command") {
			s.Exec = f.readExec(o)
		}
	case "evacuate":
		if o, ok := f.object(n, kind, []string{"host", "to"}); ok && o.need("host") {
			s.Evacuate = f.readEvacuate(o)
		}
	}
}

// readMoveClient reads where a client goes, which must have arrived before the end.
func (f *file) readMoveClient(o *object, at time.Duration) *MoveClient {
	m := &MoveClient{
		Client: o.known("client", "client", f.clients),
		To:     o.known("to", "place", union(f.sites, []string{Internet})),
		Gap:    o.duration("gap", 0),
	}
	f.endsLate(o, "gap", at, m.Gap)
	return m
}

// endsLate reports what a step that begins before a stated timeout does not end before it.
func (f *file) endsLate(o *object, key string, at, lasts time.Duration) {
	if !f.lateBy(at) && f.lateBy(at+lasts) {
		o.wrong(key, fmt.Sprintf("%s of %s does not end before the end, timeout %s", key, lasts, f.out.End.Timeout), "a time before end.timeout")
	}
}

// readExec reads what a guest runs, in which somebody must be there to be asked.
func (f *file) readExec(o *object) *Exec {
	e := &Exec{Guest: o.known("guest", "guest", f.guests)}
	if slices.ContainsFunc(f.out.Guests, func(g Guest) bool { return g.Name == e.Guest && g.Agent == "dhcp" }) {
		o.wrong("guest", "nobody in guest "+e.Guest+" can be asked to run something (agent: dhcp)", "a guest with another agent")
	}
	var ok bool
	if e.Command, ok = o.command("command"); ok && strings.TrimSpace(e.Command) == "" {
		o.wrong("command", "command of exec is empty", allowedCommand)
	}
	return e
}

// readEvacuate reads who leaves what for where, which must have a host that is not left, too.
func (f *file) readEvacuate(o *object) *Evacuate {
	e := &Evacuate{Host: o.known("host", "host", f.places), To: o.known("to", "site or host", f.places)}
	if e.Host == "" || e.To == "" && o.has("to") {
		return e
	}
	left, to := f.out.Hosts(e.Host), f.hosts
	if e.To != "" {
		to = f.out.Hosts(e.To)
	}
	switch {
	case slices.ContainsFunc(to, func(host string) bool { return !slices.Contains(left, host) }):
	case e.To == "":
		o.wrong("host", "evacuate of "+e.Host+", and there is no other host", "a file with another host")
	case e.To == e.Host:
		o.wrong("to", "evacuate moves "+e.Host+" to itself", "another site or host")
	default:
		o.wrong("to", fmt.Sprintf("evacuate moves %s to %s, which is evacuated, too", e.Host, e.To), "another site or host")
	}
	return e
}

// throttle is how far mode precopy may throttle the guest, percent.
func (o *object) throttle(mode string) int {
	share := o.percent("throttle")
	percent := int(math.Round(share * 100))
	switch {
	case share > 0 && percent == 0: // it would not be throttled at all
		o.wrong("throttle", "throttle of migrate is less than half a percent", "0%, which is not to throttle, or 1% to 99%")
	case share > 0.99:
		o.wrong("throttle", "throttle of migrate leaves the guest no time", "0% to 99%")
	case share > 0 && mode != "precopy" && !o.unsure("mode"):
		o.wrong("throttle", "throttle with mode "+mode, "throttle with mode precopy")
	}
	return percent
}

func (f *file) readMigrate(n ast.Node) *Migrate {
	o, ok := f.object(n, "migrate", migrateKeys)
	if !ok || !o.need("guest", "to") {
		return nil
	}
	m := &Migrate{Guest: o.known("guest", "guest", f.guests), To: o.known("to", "site or host", f.places)}
	m.Mode = o.word("mode", "auto", modes...)
	m.Transfer = o.word("transfer", "auto", transfers...)
	own := "auto"
	if g, ok := f.out.Guest(m.Guest); ok {
		own = g.Network
	}
	m.Network = o.word("network", own, networks...)
	m.Downtime = o.duration("downtime", 300*time.Millisecond)
	if m.Downtime < time.Millisecond || m.Downtime > maxDowntime {
		o.wrong("downtime", "downtime of migrate is "+m.Downtime.String(), "a budget from 1ms to 1m")
	}
	m.Bandwidth = o.rate("bandwidth")
	if m.Bandwidth != 0 && m.Bandwidth < minRate {
		o.wrong("bandwidth", fmt.Sprintf("bandwidth of migrate is %d bit/s", m.Bandwidth), "0, which is no limit, or at least 8kbit")
	}
	m.Throttle = o.throttle(m.Mode)
	m.InsecureTransfer = o.flag("insecure_transfer")
	if m.InsecureTransfer && !strings.HasPrefix(m.Transfer, "qemu-") && !o.unsure("transfer") {
		o.wrong("insecure_transfer", "insecure_transfer with transfer "+m.Transfer, "insecure_transfer with a transfer of QEMU's own: "+join(transfers[3:]))
	}
	return m
}

// link reads the site and uplink that a step is about.
func (f *file) link(o *object) (site, uplink string) {
	site = o.known("site", "site", f.sites)
	if !o.has("uplink") {
		return site, AllUplinks
	}
	names := []string{AllUplinks}
	for _, s := range f.sites {
		if s == site || site == "" {
			names = union(f.uplinks[s], names)
		}
		if s == "" && site == "" {
			names = append(names, "") // what could not be read has others
		}
	}
	return site, o.known("uplink", strings.TrimSuffix("uplink of "+site, " of "), names)
}

// lasting is for how long a link is changed; 0: to the end of the run. What is said to last 0s is over at once.
func (o *object) lasting() time.Duration {
	lasts := o.duration("for", 0)
	if lasts == 0 && o.has("for") {
		return atOnce
	}
	return lasts
}

func (f *file) readCut(n ast.Node) *Cut {
	o, ok := f.object(n, "cut", []string{"site", "uplink", "all", "for"})
	if !ok || !o.need("site") {
		return nil
	}
	all := o.has("all") && (o.empty("all") || o.flag("all")) // `{site: a, all}` too
	switch {
	case all && o.has("uplink"):
		f.wrong(o.at, "cut has both uplink and all", "uplink: NAME, or uplink: all")
	case !all && !o.has("uplink") && !o.unsure("uplink", "all"):
		f.wrong(o.at, "cut says not which uplink", "uplink: NAME, or uplink: all")
	}
	c := &Cut{For: o.lasting()}
	c.Site, c.Uplink = f.link(o)
	return c
}

func (f *file) readDegrade(n ast.Node) *Degrade {
	o, ok := f.object(n, "degrade", []string{"site", "uplink", "rate", "delay", "loss", "for"})
	if !ok || !o.need("site", "uplink") {
		return nil
	}
	d := &Degrade{For: o.lasting()}
	d.Site, d.Uplink = f.link(o)
	if o.has("rate") {
		d.Rate = new(o.linkRate())
	}
	if o.has("delay") {
		d.Delay = new(o.linkDelay())
	}
	if o.has("loss") {
		d.Loss = new(o.percent("loss"))
	}
	if d.Rate == nil && d.Delay == nil && d.Loss == nil && !o.unsure("rate", "delay", "loss") {
		f.wrong(o.at, "degrade changes nothing", "rate, delay, loss: at least one")
	}
	return d
}

// readKill reads what is ended, and when it starts again, which must be before the end.
func (f *file) readKill(n ast.Node, at time.Duration) *Kill {
	o, ok := f.object(n, "kill", []string{"agent", "qemu", "restart_after"})
	if !ok {
		return nil
	}
	k := &Kill{Restart: o.has("restart_after"), RestartAfter: o.duration("restart_after", 0)}
	f.endsLate(o, "restart_after", at, k.RestartAfter)
	if o.has("agent") == o.has("qemu") && !o.unsure("agent", "qemu") {
		f.wrong(o.at, "kill wants one of agent and qemu", "{agent: SITE, restart_after: 1s}, {qemu: {guest, side}, restart_after: 1s}")
	}
	if o.has("agent") {
		k.Agent = o.known("agent", "site or host", f.places)
	}
	if !o.has("qemu") {
		return k
	}
	if q, ok := f.object(o.fields["qemu"].node, "qemu of kill", []string{"guest", "side"}); ok {
		if q.need("guest") {
			k.QEMU = q.known("guest", "guest", f.guests)
		}
		k.Side = q.word("side", "", "source", "destination")
	}
	return k
}
