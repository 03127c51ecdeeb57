// Package asking is when a guest is asked what it needs of its old addresses, and what is made of its answers: one that
// has needed them for long is asked seldom, as it lists what it has for each answer, and one that did not answer not
// for a while. So is a subnet agent that did not stand for them.
package asking

import (
	"net/netip"
	"strings"
	"sync"
	"time"

	"godwit/agent/detour"
	"godwit/agent/record"
	"godwit/internal/clock"
	"godwit/vm/guest"
)

// Asking is what is remembered of one guest for that, for use by many. The zero value has heard nothing.
type Asking struct {
	mu     sync.Mutex
	deaf   time.Time             // until when it is not asked again
	needs  map[string]needs      // by detour
	looked time.Time             // when it was last asked which of its addresses nothing needs
	udp    udpUse                // of all of its old addresses
	udpOf  map[netip.Addr]udpUse // by address
	stand  struct {              // how often a subnet agent was asked to stand for it, and when it may be asked again
		tries int
		next  time.Time
	}
	again struct { // telling clients again that were out of reach, see MayTellAgain
		since, next time.Time
		of          string                  // the migration whose clients were told
		tries       int                     // of it
		vain        map[netip.AddrPort]bool // who was told, and did not come
		nobody      string                  // the migration in whose handover nobody was, or for whom nothing can be done
	}
	homes struct { // when homes may be asked again to send its addresses directly, and how long after that
		next  time.Time
		pause time.Duration
		doubt time.Duration // the same, where it is not known whether one sends directly by now
	}
}

// DeafPause is how long a guest which did not answer is not asked again; its tunnels stay.
const DeafPause = 30 * time.Second

// A guest that still needs a detour after so long is asked for it again after a needsPart of that, needsMost at most:
// it lists what it has for each answer, and what has lasted for hours will hardly end in this second. A guest's kernel
// remembers a connection that was reset for 10 s (nf_conntrack_tcp_timeout_close): by then followSurvival is to have
// seen that it ended.
const (
	needsPart = 60
	needsMost = 5 * time.Second
)

// longList is how many connections of a detour are listed every longListPause at most, as that takes a while.
const longList, longListPause = 200, 4 * time.Second

// needs are when a guest was heard to need a detour, and when its connections were listed for that.
type needs struct {
	heard, listed time.Time
}

// IsDeaf says whether the guest did not answer a while ago, and is left alone still.
func (a *Asking) IsDeaf() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return time.Now().Before(a.deaf)
}

// LeaveAlone has the guest not asked for a while.
func (a *Asking) LeaveAlone() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.deaf = time.Now().Add(DeafPause)
}

// Again says whether it is time to ask the guest whether it needs a detour.
func (a *Asking) Again(d detour.Detour) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	pause := min(clock.Now().Sub(d.Up)/needsPart, needsMost).Truncate(time.Second) // as often as it is looked after
	return d.Up.IsZero() || time.Since(a.needs[d.ID].heard) >= pause
}

// StillNeeds notes that the guest has said so of a detour.
func (a *Asking) StillNeeds(d detour.Detour) {
	a.noteNeeds(d.ID, func(n *needs) { n.heard = time.Now() })
}

// ListsAgain says whether it is time to list the guest's connections for a detour that carries so many, and takes them
// as listed then.
func (a *Asking) ListsAgain(d detour.Detour, carried int) (due bool) {
	a.noteNeeds(d.ID, func(n *needs) {
		if due = carried <= longList || time.Since(n.listed) >= longListPause; due {
			n.listed = time.Now()
		}
	})
	return due
}

func (a *Asking) noteNeeds(id string, note func(*needs)) {
	a.mu.Lock()
	defer a.mu.Unlock()
	n := a.needs[id]
	note(&n)
	if a.needs == nil {
		a.needs = map[string]needs{}
	}
	a.needs[id] = n
}

// udpUse is when the number of datagrams to a guest's old addresses last changed: it grew, or the guest's program was
// started again, and counts anew. The zero value is that none have come.
type udpUse struct {
	count uint64
	at    time.Time
}

// udpQuiet is how long no datagram may come before nobody is thought to send any.
const udpQuiet = record.FlowQuiet

// InUse says whether anything but MPTCP, which has a better way, uses the addresses
// that users tells of.
func (a *Asking) InUse(users guest.Users) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if users.UDPCount != a.udp.count {
		a.udp = udpUse{users.UDPCount, time.Now()}
	}
	return users.TCP+users.UDP > 0 || a.udp.isRecent()
}

// IsQuiet says whether no datagram has come to an address for a while, where so many have come until now.
func (a *Asking) IsQuiet(addr netip.Addr, count uint64) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.udpOf == nil {
		a.udpOf = map[netip.Addr]udpUse{}
	}
	was := a.udpOf[addr]
	if was.count != count {
		was = udpUse{count, time.Now()}
		a.udpOf[addr] = was
	}
	return !was.isRecent()
}

func (u udpUse) isRecent() bool { return !u.at.IsZero() && time.Since(u.at) < udpQuiet }

// A subnet agent that did not stand for addresses is asked so often, so far apart, while
// their lease runs.
const (
	standTries = 5
	standPause = time.Minute
)

// Asked notes that a subnet agent was asked for the guest, and is not to be asked again soon.
func (a *Asking) Asked(at time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.stand.tries, a.stand.next = a.stand.tries+1, at.Add(standPause)
}

// AskedInVain takes back that it was asked: whether it stands for the guest's addresses is not known, so it is asked
// on.
func (a *Asking) AskedInVain() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.stand.tries--
}

// MayAsk says whether a subnet agent is to be asked for the guest now.
func (a *Asking) MayAsk(at time.Time) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.stand.tries < standTries && !at.Before(a.stand.next)
}

// A home that did not send addresses directly is asked again so soon at first, and so seldom at last; one of which it
// is not known whether it does, sooner, and as late as homesPause at last.
const (
	homesPause  = 15 * time.Second
	homesRarely = 10 * time.Minute
	homesSoon   = 2 * time.Second
)

// MayAskHomes says whether homes are to be asked now to send the guest's addresses directly.
func (a *Asking) MayAskHomes(at time.Time) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return !at.Before(a.homes.next)
}

// AskedHomes notes that they were asked, or are just now, and are to be left alone for longer than the last time.
func (a *Asking) AskedHomes(at time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.homes.pause = min(max(2*a.homes.pause, homesPause), homesRarely)
	a.homes.next = at.Add(a.homes.pause)
}

// HomesAreUnknown notes that one may send directly, and has not said so.
func (a *Asking) HomesAreUnknown(at time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.homes.doubt = min(max(2*a.homes.doubt, homesSoon), homesPause)
	a.homes.pause, a.homes.next = 0, at.Add(a.homes.doubt)
}

// LooksAgain says whether it is time to ask which of its addresses nothing needs, and takes it as asked then.
func (a *Asking) LooksAgain() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	due := time.Since(a.looked) >= udpQuiet
	if due {
		a.looked = time.Now()
	}
	return due
}

// All of a guest's clients are told with those that were out of reach (see guest.TellAgain): so that is done a few times
// in the life of an agent, and not soon after it was done.
const (
	againMost  = 5 // of a migration
	againPause = 5 * time.Second
	// againIn is how long a client may answer after it was told.
	againIn = 2 * time.Second
	// restPart is how many times as long as a look, or a telling, took there is none after it: a guest lists all that it
	// has.
	restPart = 10
)

// MayTellAgain says whether the guest may tell those of a migration now, as far as is known here.
func (a *Asking) MayTellAgain(migration string, at time.Time) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return !at.Before(a.again.next) && a.again.nobody != migration && (a.again.of != migration || a.again.tries < againMost)
}

// NobodyIsAway notes that there are none of that migration.
func (a *Asking) NobodyIsAway(migration string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.again.nobody = migration
}

// NobodyIsTold notes that the guest has looked, and told nobody.
func (a *Asking) NobodyIsTold(begun, now time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.again.next = now.Add(restPart * now.Sub(begun))
}

// ToldAgain notes that it was asked of that migration, and told somebody, or that it is not known whether. refuse are
// those of unable that were told the time before, too: what a client is told once may be lost.
func (a *Asking) ToldAgain(migration string, begun, now time.Time, unable []guest.Unable) (refuse []guest.Unable) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.again.of != migration {
		a.again.of, a.again.tries, a.again.vain = migration, 0, map[netip.AddrPort]bool{}
	}
	a.again.tries++
	a.again.next, a.again.since = now.Add(max(againPause, restPart*now.Sub(begun))), begun.Add(againIn)
	for _, u := range unable {
		if strings.HasPrefix(u.Why, guest.WhyAway) {
			continue
		}
		if a.again.vain[u.Remote] {
			refuse = append(refuse, u)
		}
		a.again.vain[u.Remote] = true
	}
	return refuse
}

// UntoldSince is since when who is heard of was not told again; zero: nobody of that migration was.
func (a *Asking) UntoldSince(migration string) time.Time {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.again.of != migration {
		return time.Time{}
	}
	return a.again.since
}
