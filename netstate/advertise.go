package netstate

import (
	"errors"
	"fmt"
	"net"
	"os"
	"time"
)

const (
	// Routers speak no more often than that (RFC 4861 §10, MIN_DELAY_BETWEEN_RAS), asked or not.
	leastBetween = 3 * time.Second
	// A guest away from its routers hears them no less often than that.
	leastOften = 10 * time.Minute
)

// Every is how often it must be said for what it grants not to run out: three times in the shortest
// of its lifetimes, as routers do themselves (RFC 4861 §6.2.1, AdvDefaultLifetime).
func (a Advertisement) Every() time.Duration {
	every := leastOften
	if ra, err := a.parse(); err == nil {
		for _, d := range lifetimes(ra) {
			every = min(every, d/3)
		}
	}
	return max(every, leastBetween)
}

// An Advertiser says at a guest's tap what routers of its own link said, where they do not hear it.
type Advertiser struct {
	tap    *os.File // a packet socket there
	frames [][]byte
	every  time.Duration
	may    func() bool
	done   chan struct{}
}

// Advertise begins to say all at the tap device, in the network namespace of the calling thread, as if
// the routers had the MAC of who answers for them (OffLink.Routers). It does so at once, again and again,
// and when the guest asks (RFC 4861 §6.2.6), as long as may says so; until Close, or the tap goes. Nobody
// else hears it: it does not cross the bridge. On error nothing is left.
func Advertise(device string, mac net.HardwareAddr, all []Advertisement, may func() bool) (*Advertiser, error) {
	s := &Advertiser{every: leastOften, may: may, done: make(chan struct{})}
	ifi, err := net.InterfaceByName(device)
	if err != nil {
		return nil, fmt.Errorf("advertise at %s: %w", device, err)
	}
	for _, a := range all {
		frame, err := a.frame(mac, ifi.MTU)
		if err != nil {
			return nil, fmt.Errorf("advertise at %s: %w", device, err)
		}
		s.frames, s.every = append(s.frames, frame), min(s.every, a.Every())
	}
	fd, err := hearKind(ifi.Index, routerAsked, 0)
	if err != nil {
		return nil, fmt.Errorf("advertise at %s: %w", device, err)
	}
	s.tap = os.NewFile(uintptr(fd), "advertisements at "+device)
	go s.serve()
	return s, nil
}

// Done is closed when it says nothing more.
func (s *Advertiser) Done() <-chan struct{} { return s.done }

// Close ends it; what is being said is finished.
func (s *Advertiser) Close() error {
	err := s.tap.Close()
	<-s.done
	return err
}

func (s *Advertiser) serve() {
	defer close(s.done)
	buf := make([]byte, 2048)
	var last time.Time
	for next := time.Now(); ; {
		s.tap.SetReadDeadline(next)
		_, err := s.tap.Read(buf)
		switch {
		case err == nil: // it asks
			if soon := last.Add(leastBetween); soon.Before(next) {
				next = soon
			}
			time.Sleep(betweenAnswers) // it may ask without end
		case !errors.Is(err, os.ErrDeadlineExceeded):
			return // the tap is down, or gone
		default:
			if s.may() {
				for _, f := range s.frames {
					_, _ = s.tap.Write(f) // lost: it is said again
				}
			}
			last = time.Now()
			next = last.Add(s.every)
		}
	}
}
