package tunnel

import (
	"sync"
	"time"
)

// What a sparse log takes: WireGuard says of each batch of packets that it could not be sent, which is thousands of
// lines a second while an uplink is down, and a tunnel's log lies in memory (/run).
const (
	sparseLines  = 5
	sparsePeriod = time.Minute
)

// A sparse log passes on the first sparseLines of each sparsePeriod, and how many it left out.
type sparse struct {
	say func(format string, args ...any)

	mu         sync.Mutex
	begun      time.Time // of this period
	said, left int       // lines in it
}

func (s *sparse) printf(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if now := time.Now(); now.Sub(s.begun) >= sparsePeriod {
		if s.left > 0 {
			s.say("%d more lines in %v before", s.left, now.Sub(s.begun).Round(time.Second))
		}
		s.begun, s.said, s.left = now, 0, 0
	}
	if s.said == sparseLines {
		s.left++
		return
	}
	s.said++
	s.say(format, args...)
}
