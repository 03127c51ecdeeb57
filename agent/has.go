package agent

import (
	"context"

	"godwit/transfer/encode"
	"godwit/transfer/encode/visit"
	"godwit/transfer/pages"
)

// beginHas finds out, beside the rest of a check, which pages of an offer's sample this host has already: what it kept
// of the guest's earlier visit has them where they were, and files of its image may have them anywhere. These are those
// that it will offer (elsewhere). nil: no sample came, or nothing is kept here.
func (a *Agent) beginHas(ctx context.Context, offer Offer) <-chan []bool {
	answer := make(chan []bool, 1)
	if offer.Sample == nil || a.config.KeepMemory == 0 {
		answer <- nil
		return answer
	}
	go func() {
		ctx, cancel := limitHas.on(ctx)
		defer cancel()
		answer <- a.whichHere(ctx, offer)
	}()
	return answer
}

func (a *Agent) whichHere(ctx context.Context, offer Offer) []bool {
	out := make([]bool, len(offer.Sample.Pages))
	if kept, err := OpenVisit(a.config, a.visitPath(offer.Plan.Guest)); err == nil {
		inPlace(ctx, kept, offer.Sample, out)
		kept.Close() //nolint:errcheck // it was read only
	}
	image := a.config.ImageOf(offer.Description.Image)
	for _, path := range []string{image.Kernel, image.Initrd} {
		if file, err := visit.Open(path); err == nil {
			anywhere(ctx, file, offer.Sample, out)
			file.Close() //nolint:errcheck // as above
		}
	}
	return out
}

// inPlace looks for each page where the file has it.
func inPlace(ctx context.Context, file *visit.File, s *Sampled, has []bool) {
	page := make([]byte, pages.Size)
	for i, number := range s.Pages {
		if ctx.Err() != nil {
			return
		}
		has[i] = has[i] || file.Content(number, page) == nil && pages.Fast(page) == s.Hashes[i]
	}
}

// anywhere looks for them all in a file.
func anywhere(ctx context.Context, file *visit.File, s *Sampled, has []bool) {
	wanted := map[uint64][]int{}
	for i, hash := range s.Hashes {
		wanted[hash] = append(wanted[hash], i)
	}
	const atOnce = 256
	// An error leaves what was read before it.
	file.Hashes(ctx, atOnce, encode.MostOffered, func(_ uint64, hashes []uint64) bool { //nolint:errcheck // as above
		for _, hash := range hashes {
			for _, i := range wanted[hash] {
				has[i] = true
			}
		}
		return true
	})
}
