package agent

import (
	"context"
	"time"

	"godwit/agent/limits"
	"godwit/agent/record"
	"godwit/migration"
	"godwit/vm/guest"
)

// hearAfter is how long a guest whose connections follow is asked nothing else: an emulated one
// has enough to do with them. They keep their old addresses until the end, so a list of them is as good later.
const hearAfter = 500 * time.Millisecond

// hearLater is hearGuest after hearAfter, or when its answer is asked for.
func (m *incoming) hearLater(ctx context.Context) (answer func() error) {
	now, heard := make(chan struct{}), make(chan error, 1)
	go func() {
		select {
		case <-now:
		case <-time.After(hearAfter):
		}
		heard <- m.hearGuest(ctx)
	}()
	return func() error {
		close(now)
		return <-heard
	}
}

// hearGuest asks for the list of connections, which comes by itself, and hears when the guest went on. In a handover that is
// tried again it asks again where there was no answer, as of a guest that waited for its memory.
func (m *incoming) hearGuest(ctx context.Context) error {
	g := m.work.guest
	if m.work.listedBefore == nil || m.listingFailed() {
		m.work.listedBefore = listConnections(context.WithoutCancel(ctx), g, migration.Bare(m.plan.Held)) // the handover may be over before it is
	}
	ticks := func(every time.Duration) error {
		return m.asked(ctx, func(ctx context.Context) error { return g.Channel().Ticks(ctx, every) })
	}
	if !g.Held().Description.Silent() && m.rec.Snapshot().FirstTick == nil && ticks(tickHeard) == nil {
		first := firstTick(ctx, m.rec, g.Channel())
		sleep(ctx, ticksHeard*tickHeard)
		if first != nil {
			first = truest(m.rec, first, g.Channel().Events())
			m.rec.Edit(func(r *record.Report) { r.FirstTick = first })
		}
	}
	return ticks(0)
}

// awaitListed returns when the list of connections that was asked for is there, or limits.Listed has passed: subflows that
// have closed are on none.
func (m *incoming) awaitListed(ctx context.Context) {
	if m.work.listedBefore == nil {
		return
	}
	ctx, cancel := limits.Listed.On(ctx)
	defer cancel()
	select {
	case l := <-m.work.listedBefore:
		m.keepListed(l)
	case <-ctx.Done():
	}
}

// listingFailed says whether the guest has not told its connections, though it was asked; it does not wait.
func (m *incoming) listingFailed() bool {
	select {
	case l := <-m.work.listedBefore:
		m.keepListed(l)
		return l.err != nil
	default:
		return false
	}
}

// keepListed puts a list back that was looked at: survive reads it.
func (m *incoming) keepListed(l listing) {
	again := make(chan listing, 1)
	again <- l
	m.work.listedBefore = again
}

// tickHeard is the interval of the ticks that tell for how long a guest stood still, when it has arrived, and
// ticksHeard how many are heard: one that was on its way for a shorter time tells it better.
const (
	tickHeard  = 10 * time.Millisecond
	ticksHeard = 4
)

// firstTick is the next that is heard, nil where there is none.
func firstTick(ctx context.Context, rec *record.Record, c guest.Channel) *record.Tick {
	ctx, cancel := limits.FirstTick.On(ctx)
	defer cancel()
	for {
		select {
		case e, ok := <-c.Events():
			if !ok {
				return nil
			}
			if e.Name == guest.EventTick {
				return &record.Tick{N: e.N, At: rec.Stamp(e.At), Mono: e.MonoNS}
			}
		case <-ctx.Done():
			return nil
		}
	}
}

// truest is the best of a tick and those that were heard since; it does not wait.
func truest(rec *record.Record, first *record.Tick, events <-chan guest.Event) *record.Tick {
	for {
		select {
		case e, ok := <-events:
			if !ok {
				return first
			}
			if e.Name == guest.EventTick {
				first = record.Truer(first, &record.Tick{N: e.N, At: rec.Stamp(e.At), Mono: e.MonoNS}, false)
			}
		default:
			return first
		}
	}
}
