package record

import "time"

// catchUp is how far a pace may fall behind before it forgets what it missed.
const catchUp = 50 * time.Millisecond

// Pace spaces events evenly. After a pause (a paused guest, a full socket)
// it goes on from now, catching up with at most 50 ms; a strict pace catches
// up with nothing.
type Pace struct {
	every  time.Duration
	strict bool
	next   time.Time
	timer  *time.Timer
}

// NewPace returns a pace with one event per interval, which must be positive.
func NewPace(every time.Duration, strict bool) *Pace {
	return &Pace{every: every, strict: strict, next: time.Now(), timer: time.NewTimer(time.Hour)}
}

// Wait returns true when the next event is due, false as soon as done is closed.
func (p *Pace) Wait(done <-chan struct{}) bool {
	select {
	case <-done:
		return false
	case <-p.Next():
		return true
	}
}

// Next returns what tells when the next event is due, for one who waits for other things, too. Each call is another event.
func (p *Pace) Next() <-chan time.Time {
	p.next = p.next.Add(p.every)
	wait := time.Until(p.next)
	if wait > 0 {
		p.timer.Reset(wait)
		return p.timer.C
	}
	if behind := -wait; behind > catchUp || (p.strict && behind > p.every) {
		p.next = time.Now()
	}
	return Overdue
}

// Overdue always has something to receive.
var Overdue = func() <-chan time.Time {
	c := make(chan time.Time)
	close(c)
	return c
}()

// Due says whether the event that Next returned is due by now.
func (p *Pace) Due() bool { return !time.Now().Before(p.next) }

// Stop frees the timer.
func (p *Pace) Stop() { p.timer.Stop() }
