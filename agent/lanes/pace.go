package lanes

import "godwit/agent/peer"

// The share of a path's rate that a migration sends at most, without the headers of its packets
// (the kernel paces what TCP carries): it fills no queue by itself.
const (
	// sharedShare leaves 4 % of a path to guests, so that their packets do not wait behind
	// the migration's: 1448 bytes of 1500 are counted. Lanes send more while guests do not use it (easing).
	sharedShare = 0.93
	// ownShare is 98 % of a path that carries migrations only, and 99 % with Ethernet's headers.
	ownShare = 0.95
	// multipathShare is what MPTCP's own option leaves of a packet's 1448 bytes: that of each segment is 32 bytes at
	// most (RFC 8684, 3.3).
	multipathShare = 1416. / 1448
	// multipathSlack is for the kernel, which sends what it was given of that connection as fast as a subflow's window
	// allows: the queue that this makes on a path empties by what is left of its rate, and guests' packets wait behind
	// it until then.
	multipathSlack = 0.97
)

// Pace is how fast one stream may send on its path, bytes per second, where the
// path's rate is known (else 0) and channels streams share all paths.
func Pace(p peer.Path, channels, paths int) int64 {
	sharing, share := max(1, (channels+paths-1)/paths), ownShare
	if p.Shared {
		share = sharedShare
	}
	return int64(float64(p.Rate) / 8 * share / float64(sharing))
}

// PaceMultipath is how fast one MPTCP connection over all these paths may send, bytes per second; 0: the rate of one is
// not known.
func PaceMultipath(all []peer.Path) (sum int64) {
	for _, p := range all {
		if p.Rate == 0 {
			return 0
		}
		part := float64(Pace(p, 1, 1)) * multipathShare
		if p.Shared {
			part *= multipathSlack
		}
		sum += int64(part)
	}
	return sum
}
