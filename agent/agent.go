// Package agent is the one process of Godwit on a host: it has guests under care,
// performs migrations as source and destination, and remembers both.
//
// One goroutine owns one migration: outgoing at its source, incoming at its destination. It
// steps the machine (package migration), journals the new state, performs the effect that
// follows and feeds back what came of it. What it made in the kernel carries our mark, and is
// found again without it. QEMU and tunnels are processes of their own: an agent that dies takes
// nothing with it.
//
// Files begin with what they are of, such as source_, destination_, detour_, guest_: docs/architecture.md has the list,
// and which effect is in which of them. What needs none of the agent's state is a package below: what people write
// (config), files that are kept (journal, and what is in it: written; statefile, visits), the link to other hosts
// (peer), and what is said over it (talk), looks at the paths there (probe), which of them memory takes (ways), and how
// (lanes, datapath), disks that take those (disks), guests under care (guests), what a handover gives them (handed),
// also after a boot (boots), how they are asked (line), and how often (asking), those in which nobody can be (outside),
// what bars a guest from a host (capable), QEMUs that no agent made up (described), which addresses guests may be given
// (addresses), detours (detour), ends of tunnels (ends), other pairs of uplinks for them (otherway), routers of the LAN
// (routers), what subnet agents have not heard yet (owed), what migrations share (uplinks, priority), what is known of
// each (record) and of guests (care), what a prediction rests on (sample), what guests and tunnels have written (logs),
// what users are told by (hook, metrics) and may ask (api), how long what may take (limits), what a lab has it look at
// (compare).
package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"godwit/agent/addresses"
	"godwit/agent/boots"
	"godwit/agent/care"
	"godwit/agent/config"
	"godwit/agent/datapath"
	"godwit/agent/detour"
	"godwit/agent/ends"
	"godwit/agent/guests"
	"godwit/agent/hook"
	"godwit/agent/journal"
	"godwit/agent/leftover"
	"godwit/agent/logs"
	"godwit/agent/metrics"
	"godwit/agent/owed"
	"godwit/agent/peer"
	"godwit/agent/priority"
	"godwit/agent/probe"
	"godwit/agent/record"
	"godwit/agent/routers"
	"godwit/agent/statefile"
	"godwit/agent/uplinks"
	"godwit/agent/visits"
	"godwit/internal/lists"
	"godwit/migration"
	"godwit/transfer/proxy"
)

// Agent is the state of one host's agent.
type Agent struct {
	config  *config.Config
	log     *slog.Logger
	id      *peer.Identity
	guests  *guests.Set
	detours *detour.Store
	records *record.Store
	hooks   *hook.Set
	metrics *metrics.Set
	feed    *feed
	probes  *probe.Reflector
	clock   func() time.Time

	priority priority.Session // what the agent weighs among the host's programs

	book       *addresses.Book    // of addresses that guests may be given
	endpoints  uplinks.Endpoints  // of MPTCP, for memory
	buffers    datapath.Buffers   // of what guests here send
	meters     *uplinks.Meters    // of what leaves by the uplinks; nil: not yet
	shares     uplinks.WireShares // of the bytes that they count, each migration's
	rightOfWay uplinks.RightOfWay // among migrations that share uplinks
	routers    routers.Heard      // those on the LAN
	owedWords  *owed.Words        // what subnet agents were asked, and have not answered yet
	untoldEnds []detour.Detour    // of leases, as an earlier agent was killed
	unled      unled              // which detours' other ends lead nothing here
	endedAsked endedAsked         // of which guests that have ended here a source is being asked
	rarely     rarely             // what was logged lately, and is not logged again at once

	making sync.Mutex // held by who makes a detour's tunnel again, or takes it down: both have one name

	mu           sync.Mutex
	outgoing     map[string]*outgoing
	incoming     map[string]*incoming
	arrivals     uint64                // incoming migrations admitted so far
	abortedEarly map[string]earlyAbort // by source and id: migrations given up before their prepare came here
	unread       map[string]string     // why a journal was left alone, by migration
	starved      map[string]care.Held  // guests found again that miss pages, until their migration goes on; by directory
	unwritten    map[string]*unwritten // journals of migrations that have ended, and are not in the history yet; by migration
	asked        map[string]askedWay   // ways whose far end was asked to go, and has not answered; by detour
	links        map[string]*peer.Link
	beside       map[string]*proxy.Beside // by source
	actors       sync.WaitGroup
	noting       sync.WaitGroup  // what hooks made known is being written down
	ctx          context.Context // of everything that outlives a request
}

// New reads the host's identity. Nothing is touched until Run.
func New(c *config.Config, log *slog.Logger) (*Agent, error) {
	id, err := peer.LoadIdentity(c.TLS.CA, c.TLS.Cert, c.TLS.Key)
	if err != nil {
		return nil, err
	}
	if err := c.CheckCertificate(id); err != nil {
		return nil, err
	}
	a := &Agent{
		config: c, log: log.With("host", c.Host), id: id, clock: time.Now,
		guests:   guests.In(c.StatePath("guests")),
		outgoing: map[string]*outgoing{}, incoming: map[string]*incoming{},
		metrics: newMetrics(c), feed: newFeed(), abortedEarly: map[string]earlyAbort{}, links: map[string]*peer.Link{},
	}
	id.OnRenewed(a.renewed)
	a.book = addresses.New(c, a.takenAddresses)
	a.records = record.NewStore(c.Host, c.StatePath("history"), a.log)
	a.endpoints.Kept = uplinks.KeptIn(c.Run)
	a.owedWords = &owed.Words{Dir: c.StatePath("owed"), Ask: a.askBack, Go: a.actors.Go, Log: a.log.Warn}
	return a, nil
}

// Run serves until ctx ends. Guests, tunnels and kernel state stay as they are when
// it returns; the next Run finds them.
func (a *Agent) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	a.ctx = ctx
	a.owedWords.Ctx = ctx
	if err := a.priority.Begin(); err != nil {
		a.log.Warn("guests may be slower while memory is copied", "error", err)
	}
	unlock, err := a.takeDirs()
	if err != nil {
		return fmt.Errorf("start agent %s: %w", a.config.Host, err)
	}
	defer unlock()
	scraped, err := a.listenMetrics(ctx)
	if err != nil {
		return fmt.Errorf("start agent %s: %w", a.config.Host, err)
	}
	if scraped != nil {
		defer scraped.Close()
	}
	if err := visits.MakeKey(a.config); err != nil {
		a.log.Warn("memory is not kept for a return", "error", err)
	}
	a.hooks = hook.New(a.config.Hooks, a.log, a.hookNote, a.metrics.HookCalled)
	defer a.noting.Wait()
	defer a.hooks.Close()
	a.meters = uplinks.OpenMeters(a.config.Uplinks, a.log.Warn)
	defer a.meters.Close()
	if a.detours, err = detour.Load(a.config.StatePath("detours.json"), a.config.Network); err != nil {
		return err
	}
	if err := a.answerProbes(ctx); err != nil {
		return err
	}
	a.goOn(ctx)
	if err := a.answerPeers(ctx); err != nil {
		return err
	}
	if err := a.serveAPI(ctx); err != nil {
		return err
	}
	a.serveMetrics(ctx, scraped)
	go a.keepDetours(ctx)
	a.actors.Go(func() { a.keepBoots(ctx) })
	a.actors.Go(func() { a.boundLogs(ctx) })
	a.actors.Go(func() { a.boundHistory(ctx) })
	a.actors.Go(func() { a.watchCertificate(ctx) })
	if a.config.Network.V6.IsValid() {
		go a.routers.Listen(ctx, a.config.Network.LAN, a.log)
	}
	a.warnOfHost()
	a.log.Info("agent runs", "site", a.config.Site, "guests", len(a.guests.All()))
	a.serveUntil(ctx)
	return nil
}

// keepBoots looks after guests that boot anew, until ctx ends.
func (a *Agent) keepBoots(ctx context.Context) {
	k := boots.Keeper{Config: a.config, Guests: a.guests, Records: a.records, Log: a.log, Taken: a.takenAddresses, Coming: a.isComing}
	k.Keep(ctx)
}

// boundLogs keeps short what is written beside guests and tunnels, until ctx ends.
func (a *Agent) boundLogs(ctx context.Context) {
	logs.Bound(ctx, filepath.Join(a.config.Run, "guests"), ends.Dir(a.config), a.log)
}

// serveUntil returns when ctx has ended, and everything that the agent does has come to a stop.
func (a *Agent) serveUntil(ctx context.Context) {
	<-ctx.Done()
	a.mu.Lock()
	migrations := len(a.outgoing) + len(a.incoming)
	a.mu.Unlock()
	a.log.Info("agent ends, as it was told to; guests run on, and the next agent goes on with migrations", "guests", len(a.guests.All()), "migrations", migrations)
	a.actors.Wait()
	for _, g := range a.guests.All() {
		g.CloseFiles()
	}
}

// goOn takes up what an agent before this one has left: guests, what leads to them, migrations, what others are owed.
func (a *Agent) goOn(ctx context.Context) {
	a.endHalfWritten()
	if err := a.endpoints.Sweep(); err != nil {
		a.log.Warn("addresses for memory of an earlier agent may be announced still, and MPTCP's limits be raised", "error", err)
	}
	lost := a.readopt(ctx)
	a.restoreDetours(ctx)
	a.resumeLeaseEnds() // before any ends anew
	a.endAstray(ctx)
	a.dropStrays()
	a.resumeMigrations(ctx, lost)
	a.resumeTaken()
	a.resumeEndings()
	a.owedWords.Resume()
	a.resumeAsking()
	a.resumeNames()
	a.actors.Go(func() { a.tellOfAway(ctx) })
	a.actors.Go(func() { a.warnOfUncared(ctx) }) // a QEMU that hangs is waited for
}

// warnOfUncared says which guests may run here that came, or were begun, after what STATE tells of, as it was put back
// from a backup: no command shows them.
func (a *Agent) warnOfUncared(ctx context.Context) {
	things, err := leftover.WithoutCare(ctx, a.config)
	if err != nil {
		a.log.Warn("whether guests run here without care is not known", "error", err)
	}
	for _, t := range things {
		a.log.Warn("a guest may run here without care", "guest", t.Guest, "directory", t.Name, "cure", t.Stays)
	}
}

// endHalfWritten removes files that an agent before this one was killed in writing.
func (a *Agent) endHalfWritten() {
	if err := errors.Join(statefile.Sweep(a.config.State), statefile.Sweep(a.config.Run)); err != nil {
		a.log.Warn("files are left that an earlier agent has half written", "error", err)
	}
}

// warnOfHost says once what guests cannot be moved without, and may come later: a bridge that the
// host makes after its agent, an address that a router tells it.
func (a *Agent) warnOfHost() {
	for _, missing := range a.config.Network.Missing() {
		a.log.Warn("no guest can come here before this is mended", "missing", missing)
	}
	for _, itself := range a.config.Network.Itself() {
		a.log.Warn("guests that are at home here cannot leave before this is mended", "router", itself)
	}
	for _, dir := range a.config.Unwritable() {
		a.log.Warn("no guest can move before this is mended", "directory", dir)
	}
	for _, missing := range a.config.Missing() {
		a.log.Warn("the configuration names what is not there", "missing", missing)
	}
	for _, u := range a.config.Uplinks {
		if err := u.Check(); err != nil {
			a.log.Warn("no other host is heard by an uplink before this is mended", "uplink", u.Name, "error", err)
		}
	}
	for _, slow := range a.config.Slow() {
		a.log.Warn("memory goes over an uplink as slowly as the configuration says", "uplink", slow)
	}
}

// link returns the link to the other host of the fleet of exactly that name.
func (a *Agent) link(host string) (*peer.Link, config.Neighbour, error) {
	n, ok := a.config.Peer(host)
	if !ok {
		return nil, n, a.unknown("host", host)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	l, ok := a.links[n.Host]
	if !ok {
		l = peer.NewLink(a.id, n.Host, a.config.Port, a.config.Paths(n))
		a.links[n.Host] = l
	}
	return l, n, nil
}

// unknown says of what another host, or a site, was called that this host knows none of that name.
func (a *Agent) unknown(what, name string) error {
	return &migration.Problem{Code: migration.CodeUnknownSite, Text: fmt.Sprintf(
		"%s %s: not known on host %s (it knows: %s)", what, name, a.config.Host, a.known())}
}

func (a *Agent) known() string {
	var names []string
	for _, p := range a.config.Peers {
		names = append(names, p.Host)
	}
	return lists.OrNone(names)
}

// readopt finds again the guests that an earlier agent had under care, all at once: one that is silent holds up no
// other. A guest whose QEMU is gone is lost, with a line in the log; none is started. One whose QEMU does not answer is
// waited for: resumeLate.
func (a *Agent) readopt(ctx context.Context) (lost map[string]*guests.Guest) {
	held, errs := a.guests.Remembered()
	for _, err := range errs {
		a.log.Error("guest left as it is", "error", err)
	}
	held = slices.DeleteFunc(held, a.endHalfStarted)
	found, errs := make([]*guests.Guest, len(held)), make([]error, len(held))
	var all sync.WaitGroup
	for i, h := range held {
		all.Go(func() {
			_, missing, err := inletOf(ctx, h.Dir)
			switch {
			case err != nil: // nor may its QEMU answer
				errs[i] = err
			case missing == 0:
				found[i], errs[i] = a.attach(ctx, h)
			default: // its QEMU may not answer yet: resumeStarving
				a.noteStarved(h)
			}
		})
	}
	all.Wait()
	lost = map[string]*guests.Guest{}
	for i, h := range held {
		switch g, err := found[i], errs[i]; {
		case err != nil:
			a.log.Warn("guest not found again", "guest", h.Description.Name, "error", err)
			if goneForSure(err) {
				gone := guests.New(h, nil)
				a.discard(gone)
				lost[gone.Name()] = gone
			} else {
				a.guests.NoteSilent(h)
			}
		case g != nil:
			if err := a.guests.Save(g); err != nil {
				a.log.Error("keep guest", "guest", g.Name(), "error", err)
			}
		}
	}
	return lost
}

// resumeMigrations goes on with what an earlier agent left unfinished. What is known of a
// lost guest is kept for as long as a migration of it needs that: where its disks are.
func (a *Agent) resumeMigrations(ctx context.Context, lost map[string]*guests.Guest) {
	ids, err := journal.Unfinished(a.config.StatePath("journal"))
	if err != nil {
		a.log.Error("journals", "error", err)
	}
	waits := a.resumeEach(ctx, ids, lost)
	a.starvedAreSilent()
	a.forgetLost(lost)
	for _, h := range a.guests.AllSilent() {
		if name := h.Description.Name; waits[name] == nil {
			waits[name] = &late{held: h, kept: true}
		}
	}
	for _, l := range waits {
		a.resumeLate(ctx, l)
	}
}

// precede has the agent's session weigh what a migration asks for. It is slower without, not wrong.
func (a *Agent) precede(migration string, nice int) {
	if err := a.priority.Ask(migration, nice); err != nil {
		a.log.Warn("the host's other programs may slow it down", "migration", migration, "error", err)
	}
}

// recede takes that back.
func (a *Agent) recede(migration string) {
	if err := a.priority.Drop(migration); err != nil {
		a.log.Warn("the agent keeps its precedence among the host's programs", "migration", migration, "error", err)
	}
}
