package lab

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"net/netip"
	"slices"
	"time"

	"godwit/lab/wan"
	"godwit/migration"
	"godwit/vm/guest"
)

// balance is the difference between edges and guest at one time.
type balance struct {
	guest   string
	boot    int // how often its own counters had begun anew: with each boot, and each start of its program
	at      time.Time
	missing map[netip.Addr]flowCount // of each address: counted at one end and not (yet) at the other
	byLinks int64                    // of those, what links dropped before, in tunnels
	err     error
}

// lost is how many packets were lost by then, at most, but for those that a link dropped.
func (b *balance) lost() int64 {
	n := total(b.missing)
	return n.toGuest + n.fromGuest - b.byLinks
}

// balanceEvery is how often edges and guests are compared.
const balanceEvery = time.Second

// balance compares, until ctx ends, what passed the edges with what reached the guests.
func (r *run) balance(ctx context.Context) {
	for r.untilBalance(ctx) {
		r.takeBalance(ctx, r.leftAlone)
	}
}

// untilBalance waits for the time of the next comparison. A guest that moves on at once is compared between its
// moves: or what one of them lost would count for both.
func (r *run) untilBalance(ctx context.Context) bool {
	select {
	case <-r.handed:
	case <-time.After(balanceEvery):
	case <-ctx.Done():
		return false
	}
	return true
}

// handedOver has edges and guests compared soon.
func (r *run) handedOver() {
	select {
	case r.handed <- struct{}{}:
	default:
	}
}

// leftAlone says whether a guest is asked nothing for now: it is copied, or its clients wait for what it does first
// where it has arrived, which an emulated one does slowly. What is compared before and after is enough.
func (r *run) leftAlone(guest string) bool {
	m := r.current(guest)
	if m == nil {
		return false
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.phase == migration.Copy || m.phase == migration.Switch || m.phase == migration.Handover
}

// What traffic left on its way has arrived once nothing more does for stillFor; the links may hold
// seconds of it, and a machine with other work lets guests and tunnels wait. Longer than
// arrivesWithin is not waited for.
const (
	looksEvery    = 300 * time.Millisecond
	stillFor      = 1500 * time.Millisecond
	arrivesWithin = 10 * time.Second
)

// lastBalance compares, when traffic has ended, until nothing is missing or what is does not arrive any more: that
// is lost.
func (r *run) lastBalance() {
	arrive(func() int64 { return r.takeBalance(context.Background(), func(string) bool { return false }) })
}

// arrive looks at what is missing until nothing is, or no more comes.
func arrive(missing func() int64) {
	least, since := int64(math.MaxInt64), time.Now()
	for begun := since; time.Since(begun) < arrivesWithin && time.Since(since) < stillFor; {
		time.Sleep(looksEvery)
		n := missing()
		if n == 0 {
			return
		}
		if n < least {
			least, since = n, time.Now()
		}
	}
}

// takeBalance compares once all guests but those to leave out. Packets on their way count as missing; when traffic
// has stopped and they have arrived, none are. It returns how many miss of those that could be compared.
func (r *run) takeBalance(ctx context.Context, leave func(guest string) bool) (missing int64) {
	// Read before the edges: what a link dropped by then has passed one, or left the guest.
	links := r.w.topo.LinkCounters()
	for _, g := range r.w.scenario.Guests {
		if leave(g.Name) {
			continue
		}
		b := r.balanceOf(ctx, g.Name, links)
		b.guest = g.Name
		r.mu.Lock()
		if b.boot != r.boots[g.Name] {
			b.err = fmt.Errorf("%w meanwhile", errAnew)
		}
		r.balances = append(r.balances, b)
		r.mu.Unlock()
		if b.err == nil {
			missing += max(b.lost(), 0)
		}
	}
	return missing
}

// balanceOf is one guest's, as of now; links are what the links had counted before.
func (r *run) balanceOf(ctx context.Context, name string, links map[string]wan.Counters) balance {
	b := balance{at: time.Now()}
	r.mu.Lock()
	b.boot = r.boots[name]
	r.mu.Unlock()
	if r.w.edges == nil {
		b.err = fmt.Errorf("no meters at the edges")
		return b
	}
	ask, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	var counters guest.Counters
	addrs := r.everyAddress(name)
	// What came out of the guest is compared with what had left the site before the guest
	// was asked, what goes to it with what has entered since: so neither seems to be less.
	before, err := r.w.edges.count(addrs)
	if err != nil {
		b.err = err
		return b
	}
	if b.err = r.w.agentOf(name).client.CallGuest(ask, name, "counters", nil, &counters); b.err != nil {
		return b
	}
	r.sawLoads(name, time.Now(), &counters)
	if counters.MeterError != "" {
		b.err = fmt.Errorf("%s", counters.MeterError)
		return b
	}
	if len(counters.Meter) >= guest.MostMetered { // what is not listed would look as if it had never come
		b.err = fmt.Errorf("more sockets of UDP than the guest's counters tell apart")
		return b
	}
	after, err := r.w.edges.count(addrs)
	if err != nil {
		b.err = err
		return b
	}
	own := r.w.edges.guests.passedMeter(counters.Meter, addrs)
	edge := map[netip.Addr]flowCount{}
	for a := range addrs {
		edge[a] = flowCount{toGuest: after[a].toGuest, fromGuest: before[a].fromGuest}
	}
	r.mu.Lock()
	b.boot += r.beganAnew(name, counters.Start)
	r.held.got(name, own, b.boot > 0)
	b.missing = missing(r.held.passed(name, edge, addrs), own, b.boot > 0)
	r.mu.Unlock()
	b.byLinks = r.lostByLinks(name, links)
	r.w.log.Debug("balance", "guest", name, "to", total(b.missing).toGuest, "from", total(b.missing).fromGuest, "links", b.byLinks)
	return b
}

// passedMeter is what a guest's own counters have of its clients' packets, by its address.
func (s subnets) passedMeter(meter []guest.Metered, addrs map[netip.Addr]bool) map[netip.Addr]flowCount {
	out := map[netip.Addr]flowCount{}
	for _, m := range meter {
		switch {
		case !counted(m.Proto, m.Port):
		case !m.Out && addrs[m.Dst] && !s.has(m.Src):
			out[m.Dst] = out[m.Dst].plus(flowCount{toGuest: int64(m.Packets)})
		case m.Out && addrs[m.Src] && !s.has(m.Dst):
			out[m.Src] = out[m.Src].plus(flowCount{fromGuest: int64(m.Packets)})
		}
	}
	return out
}

// everyAddress is every address that the guest has had in this run.
func (r *run) everyAddress(name string) map[netip.Addr]bool {
	var said []netip.Addr
	for _, m := range r.movesNow() {
		m.mu.Lock()
		if m.guest == name && m.report != nil && m.report.Outcome == migration.Completed {
			said = append(said, addressesOf(append(slices.Clone(m.report.Old), m.report.Next...))...)
		}
		m.mu.Unlock()
	}
	r.took(name, said, true)
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	info, err := r.guestInfo(ctx, name)
	if err == nil {
		r.learn(info)
		r.took(name, addressesOf(info.Addresses), false)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if err == nil {
		r.held.keeps(name, addressesOf(info.Addresses))
	}
	return r.held.known(name)
}

// took notes that a guest has addresses, or had them when somebody said so.
func (r *run) took(name string, addrs []netip.Addr, longAgo bool) {
	if r.w.edges == nil {
		return
	}
	all := map[netip.Addr]bool{}
	for _, a := range addrs {
		all[a] = true
	}
	counts, err := r.w.edges.count(all)
	if err != nil { // whoever compares is told
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, a := range addrs {
		r.held.take(name, a, counts[a], longAgo)
	}
}

func addressesOf(addrs []migration.Address) (out []netip.Addr) {
	for _, a := range addrs {
		out = append(out, a.Prefix.Addr())
	}
	return out
}

// around is how far from a window edges and guest are compared.
const around = int64(4 * time.Second)

// bounds are of what was lost by the beginning of a window, and by its end: the smallest differences that were read.
type bounds struct{ latest, before, after int64 } // latest: the last before the window

// unread is a difference that was not read.
const unread = int64(math.MaxInt64)

func (b *bounds) take(at, from, to, lost int64) {
	if at <= from {
		b.latest = lost
	}
	if at >= from-around {
		b.before = min(b.before, lost)
	}
	if at >= to {
		b.after = min(b.after, lost)
	}
}

// within is how many were lost in the window.
func (b *bounds) within() int64 {
	if b.latest == unread {
		return max(b.after, 0)
	}
	return max(b.after-min(b.before, b.latest), 0)
}

// dropped is how many packets between edges and guest were lost in a window, at least, and exactly so where nothing was
// on its way when it began. What is lost by some moment is no more than any difference that is read later, as packets
// on their way only add to it: the smallest of those tells, and the last, when traffic has ended, is exact. Differences
// read just before a window bound what was lost before it, too. Each direction of each address is taken by itself, as
// what is on its way one way would hide what was lost another way, but where links dropped some, which are not known by
// addresses.
//
// A difference below nothing shows that links dropped so many in tunnels that were no
// clients', such as the echo by which a tunnel is tried: as many are not taken off any more.
//
// Where the guest could not be read to the end, as its QEMU or its agent was gone, what was on its way at the last
// reading is not told from what was lost: there is a number only if it is 0. Nor is it known what links dropped in such
// tunnels where packets were on their way as the guest's counters began anew.
func (r *run) dropped(guest string, from, to int64) (int64, error) {
	all := bounds{unread, unread, unread}
	strange, linked := int64(0), false
	var why, open error // open: why nothing was read after the last that could be
	var read []*balance
	boot := r.bootBy(guest, to)
	var first *balance // of the counters that had begun anew
	for i := range r.balances {
		b := &r.balances[i]
		switch at := b.at.UnixNano(); {
		case b.guest != guest || b.boot < boot:
		case b.boot > boot:
			open = errAnew
		case b.err != nil:
			why, open = b.err, b.err
		default:
			if boot > 0 {
				first = cmp.Or(first, b)
				b = b.since(first)
			}
			open, read = nil, append(read, b)
			strange, linked = max(strange, min(-b.lost(), b.byLinks)), linked || b.byLinks != 0
			all.take(at, from, to, b.lost()+strange)
		}
	}
	switch {
	case all.after < unread:
	case all.latest == unread && all.before == unread && why != nil:
		return 0, fmt.Errorf("edges and guest could not be compared: %w", why)
	case open != nil:
		return 0, fmt.Errorf("edges and guest could not be compared once it was over: %w", open)
	default:
		return 0, fmt.Errorf("edges and guest could not be compared once it was over")
	}
	if all.latest == unread && boot > 0 {
		return 0, fmt.Errorf("%w, and its counters began anew", errAnew)
	}
	n := all.within()
	if !linked {
		n = byWays(read, from, to)
	}
	if boot > 0 && strange > 0 && open == nil {
		open = fmt.Errorf("%w while packets were on their way, and links dropped some", errAnew)
	}
	if n > 0 && open != nil {
		return 0, &boundError{n, open}
	}
	return n, nil
}

// byWays is what was lost in a window, each direction of each address by itself. Of one that was not known yet when a
// reading was taken nothing was missing.
func byWays(read []*balance, from, to int64) (n int64) {
	addrs := map[netip.Addr]bool{}
	for _, b := range read {
		for a := range b.missing {
			addrs[a] = true
		}
	}
	for a := range addrs {
		in, out := bounds{unread, unread, unread}, bounds{unread, unread, unread}
		for _, b := range read {
			in.take(b.at.UnixNano(), from, to, b.missing[a].toGuest)
			out.take(b.at.UnixNano(), from, to, b.missing[a].fromGuest)
		}
		n += in.within() + out.within()
	}
	return n
}

// boundError is why a number of lost packets is only known to be no more than most.
type boundError struct {
	most int64
	why  error
}

// Error tells both.
func (e *boundError) Error() string {
	return fmt.Sprintf("%d at most: what was on its way at the last reading is not known to have arrived: %v", e.most, e.why)
}
