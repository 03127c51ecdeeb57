package follow

import (
	"context"
	"net/netip"
	"slices"
	"sync"
	"time"

	"godwit/netstate/mptcp"
)

const (
	// movedLook is how often a client that may have moved is looked at, and movedFor for how long.
	movedLook = 300 * time.Millisecond
	movedFor  = 15 * time.Second
	// movedAtOnce bounds how many connections are looked at: in a crowd the others wait for the kernel. So many at once
	// come where it is the guest that has moved: they are not looked at before all have come, as a look at
	// thousands takes an emulated guest seconds.
	movedAtOnce = 64
	// movedRest is how many times as long as a look took there is none after it.
	movedRest = 10
	// arrivesIn is within what subflows come from where a client is now, and are told of. What it was not heard by
	// for so long before they came leads to where it was.
	arrivesIn = time.Second
)

// Moves ends subflows that lead to where a client was, until ctx ends. A client that moves tells
// that its old address is gone (REMOVE_ADDR, RFC 8684 §3.4.2) by a subflow of its kernel's choice, which may be
// the very one that is dead. The kernel here then goes on sending by that, and takes it for stale only after
// some of the connection's retransmission time-outs, which grow: the connection stands still for seconds.
type Moves struct {
	joined map[uint32]arrival // when a connection got its last subflows, by token

	mu   sync.Mutex
	last map[netip.Addr]time.Time // when one of them did, by its address here
	left map[uint32]time.Time     // when a client had left where it was, by the token of a connection of which it is known
}

// arrival is when the last subflows came that came together: the first of them, and the last.
type arrival struct{ first, last time.Time }

// Watch is Moves' work. It costs nothing while no connection gets a subflow, and the error is ErrUnsupported
// where the kernel tells of none.
func (m *Moves) Watch(ctx context.Context) error {
	events, err := mptcp.Events(ctx, mptcp.SubEstablished, mptcp.Removed)
	if err != nil {
		return err
	}
	return m.follow(ctx, events, mptcp.Connections)
}

func (m *Moves) follow(ctx context.Context, events <-chan mptcp.Event, list func() ([]mptcp.Connection, error)) error {
	m.joined = make(map[uint32]arrival)
	m.mu.Lock()
	m.last, m.left = make(map[netip.Addr]time.Time), make(map[uint32]time.Time)
	m.mu.Unlock()
	look := time.NewTimer(movedLook)
	look.Stop()
	var first, rested time.Time // when somebody came after the last look; when the next may be
	for {
		select {
		case event, open := <-events:
			if !open {
				return ctx.Err()
			}
			now := time.Now()
			m.note(event, now)
			switch noted := len(m.joined); {
			case !m.take(event, now):
			case noted == 0:
				first = now
				look.Reset(max(movedLook, rested.Sub(now)))
			case len(m.joined) == movedAtOnce && now.Sub(first) < movedFor:
				look.Reset(max(movedLook, rested.Sub(now)))
			}
		case <-look.C:
			begin := time.Now()
			connections, err := list()
			if err == nil {
				_ = mptcp.Abort(m.dead(connections, begin)...) // what stays is the kernel's to find out
			}
			first = time.Now()
			rested = first.Add(movedRest * first.Sub(begin))
			if len(m.joined) > 0 {
				look.Reset(max(movedLook, rested.Sub(first)))
			}
		}
	}
}

// note keeps when a connection came to an address. Those that may be gone are forgotten with all others.
func (m *Moves) note(event mptcp.Event, now time.Time) {
	if event.Kind != mptcp.SubEstablished {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if addr := event.Local.Addr(); len(m.last) < movedAtOnce || !m.last[addr].IsZero() {
		m.last[addr] = now
	} else {
		m.last = map[netip.Addr]time.Time{addr: now}
	}
}

// Since is how long ago the last connection came to one of addrs; 0 where that is not known.
func (m *Moves) Since(addrs []netip.Addr) (since time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, addr := range addrs {
		if at := m.last[addr]; !at.IsZero() && (since == 0 || time.Since(at) < since) {
			since = time.Since(at)
		}
	}
	return since
}

// leaves keeps when the client of a connection had left where it was, as gone lead there: when it was heard there last,
// or just before it came from somewhere else, as of its subflows some may have been idle for long. Those that may be
// gone are forgotten with all others.
func (m *Moves) leaves(token uint32, gone []mptcp.Subflow, now time.Time) {
	for _, s := range gone {
		m.leftAt(token, now.Add(-s.Silent))
	}
	if len(gone) > 0 {
		m.withdraws(token)
	}
}

// withdraws is leaves of a client that has withdrawn an address, where it came from somewhere else before: it withdraws
// all of them, and its kernel tells of those alone by which it can still send.
func (m *Moves) withdraws(token uint32) {
	if came, noted := m.joined[token]; noted {
		m.leftAt(token, came.first.Add(-arrivesIn))
	}
}

func (m *Moves) leftAt(token uint32, at time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, known := m.left[token]; !known && len(m.left) >= movedAtOnce {
		clear(m.left)
	}
	if at.After(m.left[token]) {
		m.left[token] = at
	}
}

// since is how long ago the client of a connection had left where it was; false: it is not known to have left.
func (m *Moves) since(token uint32) (time.Duration, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	at, left := m.left[token]
	return time.Since(at), left
}

// take notes who got a subflow, and says whether somebody did, and who has withdrawn an address after that.
func (m *Moves) take(event mptcp.Event, now time.Time) (came bool) {
	if event.Kind == mptcp.Removed {
		m.withdraws(event.Token)
	}
	if event.Kind != mptcp.SubEstablished {
		return false
	}
	if at, noted := m.joined[event.Token]; noted || len(m.joined) < movedAtOnce {
		if !noted || now.Sub(at.last) > arrivesIn {
			at.first = now
		}
		at.last = now
		m.joined[event.Token] = at
	}
	return true
}

// dead are the subflows of noted connections to addresses where a client was. It forgets who has ended or has none that
// might be one, and who had time enough.
func (m *Moves) dead(connections []mptcp.Connection, now time.Time) (dead []mptcp.Subflow) {
	alive := make(map[uint32]bool)
	for _, c := range connections {
		at, noted := m.joined[c.Token]
		if noted && now.Sub(at.last) <= movedFor && severalPlaces(c) {
			alive[c.Token] = true
			gone := left(c, now.Sub(at.last))
			m.leaves(c.Token, gone, now)
			dead = append(dead, gone...)
		}
	}
	for token := range m.joined {
		if !alive[token] {
			delete(m.joined, token)
		}
	}
	return dead
}

// severalPlaces says whether the client of c has subflows from more than one address.
func severalPlaces(c mptcp.Connection) bool {
	return slices.ContainsFunc(c.Subflows, func(s mptcp.Subflow) bool {
		return s.Remote.Addr() != c.Subflows[0].Remote.Addr()
	})
}

// left are the subflows of c whose client was not heard there any more since it came from somewhere else, which
// was so long ago, and answers from somewhere else. One that just does not answer is left alone: its path may
// be cut for a while, and nobody would make it again.
func left(c mptcp.Connection, since time.Duration) (left []mptcp.Subflow) {
	for _, s := range c.Subflows {
		if s.State == mptcp.StateEstablished && s.Unanswered >= deafAfter && s.Silent > since &&
			slices.ContainsFunc(c.Subflows, func(other mptcp.Subflow) bool {
				return other.Remote.Addr() != s.Remote.Addr() && other.State == mptcp.StateEstablished &&
					other.FullyEstablished && other.Unanswered == 0
			}) {
			left = append(left, s)
		}
	}
	return left
}
