package lanes

import (
	"context"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"godwit/agent/config"
	"godwit/agent/peer"
	"godwit/transfer/paths"
)

// Lanes over one uplink share its rate, and the kernel paces each by its part (Pace). What one whose other
// uplink is cut does not use the others get, until it works again; and what guests' clients leave of a path that is
// theirs too, a copy has, until something waits on it (easing).

// Share is the lanes of one session, by number.
type Share struct {
	paths   []peer.Path // with the rates of their parts while all work
	streams int         // that share all paths, those of other sessions too

	mu    sync.Mutex
	conns []net.Conn // the last that was opened
	paced []int64    // what it was told, bytes per second; 0: it is not paced
	ease  []easing
}

// shareEvery is how often it is looked at which lanes work, and whether something waits on their paths.
const shareEvery = 500 * time.Millisecond

// Over are a lane over each of these paths, which so many streams share, those of other sessions too; header is each
// one's by number. Share.Keep is to run beside them.
func Over(link *peer.Link, all []peer.Path, streams int, header func(number int) peer.Header) ([]paths.Lane, *Share) {
	share := &Share{paths: all, streams: streams, conns: make([]net.Conn, len(all)), paced: make([]int64, len(all)), ease: make([]easing, len(all))}
	var lanes []paths.Lane
	for number, path := range all {
		rate := Pace(path, streams, len(all))
		lanes = append(lanes, paths.Lane{
			Path: path.Name, Rate: rate, Shared: path.Shared,
			Open: func(ctx context.Context) (net.Conn, error) {
				conn, err := link.Open(ctx, path, header(number), rate)
				if err == nil {
					share.opened(number, conn, rate)
				}
				return conn, err
			},
		})
	}
	return lanes, share
}

func (s *Share) opened(number int, conn net.Conn, rate int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.conns[number], s.paced[number], s.ease[number] = conn, rate, easing{}
}

// Keep has lanes share by who works, as now says, and what is free, until they are done. It need not where no uplink
// has two, nor clients.
func (s *Share) Keep(done <-chan struct{}, now func() []paths.Path) {
	if !sharesUplinks(s.paths) && !slices.ContainsFunc(s.paths, func(p peer.Path) bool { return p.Shared }) {
		return
	}
	ticker := time.NewTicker(shareEvery)
	defer ticker.Stop()
	for {
		select {
		case <-done:
			return
		case <-ticker.C:
		}
		works := map[string]bool{}
		for _, p := range now() {
			works[p.Path] = p.Lanes > 0
		}
		s.pace(works)
	}
}

// sharesUplinks says whether some uplink has two of these paths.
func sharesUplinks(all []peer.Path) bool {
	here, there := map[netip.Addr]bool{}, map[netip.Addr]bool{}
	for _, p := range all {
		if here[p.Local] || there[p.Remote] {
			return true
		}
		here[p.Local], there[p.Remote] = true, true
	}
	return false
}

// pace tells the kernel what each lane that works may send, where that has changed.
func (s *Share) pace(works map[string]bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for number, rate := range rates(s.paths, works, s.free(), s.streams) {
		if conn := s.conns[number]; conn != nil && rate > 0 && rate != s.paced[number] && peer.Repace(conn, rate) == nil {
			s.paced[number] = rate
		}
	}
}

// free says of each lane whether its path is free of others' packets now; under mu.
func (s *Share) free() []bool {
	out, now := make([]bool, len(s.conns)), time.Now()
	for number, conn := range s.conns {
		if conn != nil {
			rtt, least := peer.Trips(conn)
			out[number] = s.ease[number].see(rtt, least, now)
		}
	}
	return out
}

// rates is what each lane may send, bytes per second, where only some work, and some have their paths for themselves
// now; 0: it does not, or its path's rate is not known. So many streams share all paths.
func rates(all []peer.Path, works map[string]bool, free []bool, streams int) []int64 {
	var living []peer.Path
	for _, p := range all {
		if works[p.Name] {
			living = append(living, p)
		}
	}
	config.ShareEnds(living)
	out := make([]int64, len(all))
	for number, p := range all {
		for _, l := range living {
			if l.Name == p.Name {
				l.Shared = l.Shared && !free[number]
				out[number] = Pace(l, streams, len(all))
			}
		}
	}
	return out
}
