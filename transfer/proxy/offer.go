package proxy

import (
	"fmt"

	"godwit/transfer/encode"
	"godwit/transfer/encode/visit"
	"godwit/transfer/wire"
)

// The destination's part in what it has of the guest's memory from elsewhere.

// elsewhere are its files, of which the first is set 1, and the guests beside it.
type elsewhere struct {
	files  []*visit.File
	beside *Beside
}

// Content reads a page; see encode.Contents.
func (e elsewhere) Content(set uint32, index uint64, dst []byte) error {
	if set >= encode.FirstPassing {
		return e.beside.content(set, index, dst)
	}
	if set == 0 || int(set) > len(e.files) {
		return fmt.Errorf("no set %d", set)
	}
	return e.files[set-1].Content(index, dst)
}

// offering says whether there is, or may come, something to offer.
func (d *Destination) offering() bool { return len(d.config.Elsewhere) > 0 || d.config.Beside != nil }

// beginIndex reads the files, and what comes for other guests.
func (d *Destination) beginIndex() {
	if d.offering() {
		d.offers = make(chan wire.Offer, encode.MostOffered/wire.MaxOffer) // all of them, mostly
		d.indexing.Go(d.index)
	}
}

// elsewhere is what they hold, for a guest of so many pages, which is lent to others from now on.
func (d *Destination) elsewhere(total uint64) encode.Contents {
	if !d.offering() {
		return nil
	}
	d.lent.Store(d.config.Beside.lend(d.mirror, total))
	return elsewhere{d.config.Elsewhere, d.config.Beside}
}

// closeElsewhere is for the end, after ctx.
func (d *Destination) closeElsewhere() {
	d.indexing.Wait()
	for _, f := range d.config.Elsewhere {
		f.Close() //nolint:errcheck // it was read only
	}
}

// index makes the offer, while the guest's lanes are being made.
func (d *Destination) index() {
	defer d.threads.enter()()
	defer close(d.offers)
	left := encode.MostOffered
	for i, f := range d.config.Elsewhere {
		// An error leaves what was read before it.
		f.Hashes(d.ctx, wire.MaxOffer, left, func(first uint64, hashes []uint64) bool { //nolint:errcheck // as above
			left -= len(hashes)
			return d.offerLater(wire.Offer{Set: uint32(i + 1), First: first, Hashes: hashes}) //nolint:gosec // few
		})
	}
	if d.offerLater(wire.Offer{}) && d.config.Beside != nil {
		d.indexBeside(left)
	}
}

// offerLater hands an offer to who sends it, and says whether that is of use still.
func (d *Destination) offerLater(o wire.Offer) bool {
	select {
	case d.offers <- o:
		return true
	case <-d.handed:
		return false
	case <-d.ctx.Done():
		return false
	}
}

// What is offered before it must be there, so that nothing else waits behind it for long:
// 512 KiB, or as many parts.
const (
	offeredAtOnce = 16 * wire.MaxOffer
	offersAtOnce  = 1024
)

// offer tells the Source, if it understands that, as soon as a lane is there, mostly long before the guest's memory comes,
// and until the guest may run here.
func (d *Destination) offer() {
	if d.receiver.AwaitLane(d.ctx) < wire.WithOffer {
		return
	}
	if d.offers == nil {
		d.receiver.Control(d.ctx, wire.TopicOffer, wire.AppendOffer(nil, wire.Offer{}), false) //nolint:errcheck // everything has ended
		return
	}
	parts, sum := 0, 0
	for o := range d.offers {
		select {
		case <-d.handed:
			return
		default:
		}
		if d.receiver.Control(d.ctx, wire.TopicOffer, wire.AppendOffer(nil, o), false) != nil {
			return // everything has ended
		}
		parts, sum = parts+1, sum+len(o.Hashes)
		if parts < offersAtOnce && sum < offeredAtOnce {
			continue
		}
		if parts, sum = 0, 0; d.receiver.Settled(d.ctx) != nil {
			return
		}
	}
}
