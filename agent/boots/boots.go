// Package boots gives a guest that boots anew what its last handover gave it.
//
// A guest that boots anew comes up as its own configuration says: with the address of the site that it left. Its QEMU
// goes on over that, but for one that an agent started of an image (-no-reboot). So it is given what it had by
// its last handover again. Which boot has that, is remembered (care.Held.Boot), so that a later agent finds it out, too;
// QEMU's RESET only says that it is worth asking.
//
// It owns what is known of each guest's boots while the agent lives, and nothing that outlives it. It keeps this: a
// guest that a migration has, or brings, is left to that, and one that is let go of is not asked any more.
package boots

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"godwit/agent/care"
	"godwit/agent/config"
	"godwit/agent/guests"
	"godwit/agent/record"
	"godwit/internal/clock"
	"godwit/vm/guest"
)

const (
	bootLook     = 30 * time.Second // between questions which boot a guest is in
	bootPause    = 2 * time.Second  // the same for one that was reset, or has booted anew; longer each time that it was given something
	bootPatience = 10 * time.Minute // for which that is done; then it is said that it was of no use
	bootSettled  = 2 * time.Minute  // after which what configures NICs in the guest has done so; what it has then, it keeps
)

// Keeper looks after the guests of a host that can boot anew.
type Keeper struct {
	Config  *config.Config
	Guests  *guests.Set
	Records *record.Store
	Log     *slog.Logger
	Taken   func() map[netip.Addr]string // the addresses that guests here have, or come with, and whose each is
	Coming  func(guest string) bool      // whether a migration brings it here
}

// Keep does so until ctx ends.
func (k *Keeper) Keep(ctx context.Context) {
	var watching sync.WaitGroup
	defer watching.Wait()
	watched := map[*guests.Guest]bool{}
	for {
		here := map[*guests.Guest]bool{}
		for _, g := range k.Guests.All() {
			here[g] = true
			if !watched[g] && outlivesBoots(g) {
				watching.Go(func() { (&boots{k: k, g: g}).watch(ctx) })
			}
		}
		if watched = here; !clock.Sleep(ctx, bootPause) {
			return
		}
	}
}

// outlivesBoots says whether the guest can boot anew here, and be asked. One whose addresses are given by DHCP asks
// for them itself.
func outlivesBoots(g *guests.Guest) bool {
	d := g.Held().Description
	return g.Machine() != nil && (d.QMP != "" || len(d.Start) > 0) && !d.Silent() && g.HasChannel() && len(d.NICs) > 1
}

// boots is what is known of one guest's boots. It belongs to one goroutine.
type boots struct {
	k *Keeper
	g *guests.Guest

	since  time.Time // since when it is known that the guest was reset, or booted anew; zero: it was not
	id     string    // of that boot, when it has answered
	given  int       // how often it was given something in it
	late   bool      // the last time when it had settled
	failed error     // why it has not got it
	said   bool      // that it has
	over   bool      // it is given nothing any more in this boot
}

// watch asks the guest on, until it is gone or let go of.
func (b *boots) watch(ctx context.Context) {
	events := b.g.Machine().Events(ctx)
	next := time.NewTimer(bootPause)
	defer next.Stop()
	for b.k.Guests.Has(b.g) {
		select {
		case e, ok := <-events:
			if !ok {
				events = nil
			} else if e.Name == "RESET" {
				b.begin("")
				next.Reset(bootPause)
			}
		case <-next.C:
			next.Reset(b.look(ctx))
		case <-b.g.Machine().Done():
			return
		case <-ctx.Done():
			return
		}
	}
}

// begin is that the guest boots anew, as that boot, or as one that is not known yet.
func (b *boots) begin(id string) { *b = boots{k: b.k, g: b.g, since: time.Now(), id: id} }

// look asks the guest which boot it is in, and gives it what it had where that is a new one. It returns after how
// long it is worth asking again. A guest that migrates is left to its migration.
func (b *boots) look(ctx context.Context) time.Duration {
	h := b.g.Held()
	given, _ := h.Handed()
	switch {
	case len(given) == 0: // its own configuration is right
		b.since = time.Time{}
		return bootLook
	case b.moves():
		if !b.since.IsZero() { // patience begins when that is over
			b.since = time.Now()
		}
		return bootPause
	}
	info, err := b.g.Info(ctx)
	id := care.BootID(info)
	switch {
	case ctx.Err() != nil:
		return bootLook
	case err != nil:
		b.failed = fmt.Errorf("it does not answer: %w", err)
		return b.pause()
	case id == "", id == h.Boot:
		b.since = time.Time{}
		return bootLook
	case h.Boot == "": // it came from an agent that did not say
		return b.remember(id)
	case id != b.id:
		b.begin(id)
	}
	return b.give(ctx, h, info)
}

// moves says whether a migration has the guest.
func (b *boots) moves() bool { return b.g.Migration() != "" || b.k.Coming(b.g.Name()) }

// pause is until the next look. One that has gone on in vain for too long says so, once.
func (b *boots) pause() time.Duration {
	switch {
	case b.since.IsZero() || b.over:
		return bootLook
	case time.Since(b.since) > bootPatience && b.failed != nil:
		b.over = true
		b.k.Log.Warn(b.say("and has not got its address again: %v; set it in the guest, or move it", b.failed), "guest", b.g.Name())
		if b.id != "" { // what people set from now on stays, whichever agent looks after it
			return b.remember(b.id)
		}
		return bootLook
	}
	return min(bootPause<<min(b.given, 4), bootLook)
}

// give gives the guest what it had: at once, again where something undoes it, and once more when it has settled, as
// not all that is undone is seen from here.
func (b *boots) give(ctx context.Context, h care.Held, info guest.Info) time.Duration {
	right := b.k.asHanded(h, info)
	settled := info.UptimeMS >= bootSettled.Milliseconds() || time.Since(b.since) >= bootSettled
	switch {
	case b.over:
		return bootLook
	case right && b.late:
		return b.remember(b.id)
	case right && b.given > 0 && !settled:
		return b.pause()
	}
	if b.given > 0 && !right {
		b.failed = errors.New("something in it takes away what it is given")
	}
	switch err := b.k.giveAgain(ctx, b.g, info); {
	case errors.Is(err, errMoves) || ctx.Err() != nil:
		return b.pause()
	case err != nil:
		b.failed = err
	default:
		if b.late = settled; b.given == 0 {
			b.failed = nil
		}
		if !b.said {
			b.said = true
			b.k.Log.Info(b.say("and has its address again"), "guest", b.g.Name())
		}
	}
	b.given++
	return b.pause()
}

// remember is that the guest has in this boot what it is to have.
func (b *boots) remember(id string) time.Duration {
	b.g.Remember(func(h *care.Held) { h.Boot = id })
	if err := b.k.Guests.SaveIfHere(b.g); err != nil { // it may have been let go of
		b.k.Log.Warn("keep guest", "guest", b.g.Name(), "error", err)
	}
	b.since = time.Time{}
	return bootLook
}

// bootNote begins what is said of a guest that booted anew.
const bootNote = "the guest booted anew"

// say tells people what became of the boot: of the guest, and in the report of the migration that gave
// it its address, where the last boot counts.
func (b *boots) say(format string, args ...any) string {
	text := fmt.Sprintf("%s (%s) "+format, append([]any{bootNote, b.since.Format(time.DateTime)}, args...)...)
	b.g.SayBooted(text)
	if given, _ := b.g.Held().Handed(); len(given) > 0 {
		b.k.Records.Amend(given[0].Handover, func(r *record.Report) {
			r.Notes = slices.DeleteFunc(r.Notes, func(n string) bool { return strings.HasPrefix(n, bootNote) })
			r.Notes = append(r.Notes, text)
		})
	}
	return text
}
