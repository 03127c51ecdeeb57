package proxy

import (
	"godwit/transfer/pages"
	"godwit/transfer/qstream"
)

// mostLoads bounds how many pages loads says. What is more is asked for, as all that is missing.
const mostLoads = 256

// loads are the pages that the destination's QEMU reads as it loads these devices: where the guest's rings stand. Where
// they were missing it would ask for them, and wait a round trip, while the guest stands still. The page before a ring
// has the table that it refers to, which the guest reads next.
func loads(pro *qstream.Prologue, devices []byte) (out []uint64) {
	known := map[uint64]bool{}
	qstream.Rings(devices, func(avail, used uint64) bool {
		for _, address := range []uint64{avail, used, avail - 1} {
			if page, ok := pro.At(address); ok && !known[page] {
				known[page] = true
				out = append(out, page)
			}
		}
		return len(out) < mostLoads
	})
	return out
}

// sendLoads sends what of that waits, when the guest is stopped and all was read. It returns the last frame's number.
func (s *Source) sendLoads(coder *frameCoder, last uint64) (uint64, error) {
	s.mu.Lock()
	numbers := s.loads
	s.mu.Unlock()
	for _, number := range numbers {
		s.store.Urgent(number)
	}
	for {
		f, err := s.store.TakeUrgent(pages.MaxPages)
		if f == nil || err != nil {
			return last, err
		}
		if err := s.sendFrame(coder, f); err != nil {
			return last, err
		}
		last = f.Number
	}
}
