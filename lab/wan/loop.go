package wan

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// spacing is the least time between two turns of a busy loop: what comes or falls due
// meanwhile is handled together, at most this late. A packet on an idle link is never
// late by it.
const spacing = 150 * time.Microsecond

// maxLate bounds what counts as a timer's own lateness: more is a busy machine.
const maxLate = 300 * time.Microsecond

// readBatch bounds how many packets are read from one end before due ones are sent.
const readBatch = 64

// wire is a link in user space: two devices and the pipes between them, driven by one
// thread. One thread is enough for several Gbit/s, since large sends stay whole, and
// it wakes only for packets and for what is due.
type wire struct {
	devices [2]*device // a, b
	pipes   [2]*pipe   // a→b, b→a
	slabs   slabs
	start   time.Time
	link    Link

	late  time.Duration // how late this machine wakes us, about: then timers are set earlier
	bunch lateness      // of this link and the others

	wake     int         // eventfd: a request waits
	requests chan func() // run by the loop's thread
	stop     bool
}

// openWire makes both devices. seed makes loss and jitter repeatable.
func openWire(a, b End, link Link, seed uint64) (*wire, error) {
	if err := link.Check(); err != nil {
		return nil, err
	}
	w := &wire{start: time.Now(), link: link, wake: -1, requests: make(chan func(), 16), bunch: lateness{new(atomic.Uint64)}}
	for i, end := range []End{a, b} {
		d, err := openDevice(end, link.MTUBytes())
		if err != nil {
			w.close()
			return nil, err
		}
		w.devices[i] = d
	}
	var err error
	if w.wake, err = unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK); err != nil {
		w.close()
		return nil, fmt.Errorf("make eventfd: %w", err)
	}
	for i := range w.pipes {
		random := rand.New(rand.NewPCG(seed, uint64(i)))
		w.pipes[i] = newPipe(link, carries(link, i), random, &w.slabs)
	}
	return w, nil
}

// carries says if direction i (0 is a→b) is not cut.
func carries(link Link, i int) bool {
	return link.Cut == CutNone || link.Cut == CutBA && i == 0 || link.Cut == CutAB && i == 1
}

func (w *wire) close() {
	for _, d := range w.devices {
		if d != nil {
			d.close()
		}
	}
	if w.wake >= 0 {
		unix.Close(w.wake)
	}
}

// do runs f between two turns of the loop and returns when it is done. It must not be
// called after the loop has ended.
func (w *wire) do(f func()) {
	done := make(chan struct{})
	w.requests <- func() { f(); close(done) }
	one := uint64(1)
	_, _ = unix.Write(w.wake, (*[8]byte)(unsafe.Pointer(&one))[:])
	<-done
}

// run carries packets until a request sets stop. It takes the calling thread for
// itself, above the programs that use the link: a late link would lie about delay.
func (w *wire) run() error {
	runtime.LockOSThread()
	urgent()
	poll := []unix.PollFd{
		{Fd: int32(w.wake), Events: unix.POLLIN},
		{Fd: int32(w.devices[0].fd), Events: unix.POLLIN},
		{Fd: int32(w.devices[1].fd), Events: unix.POLLIN},
	}
	ago := time.Duration(0) // how long packets have waited for us to look, about
	for !w.stop {
		handled := 0
		for i, d := range w.devices {
			n, err := w.read(d, w.pipes[i], ago)
			if err != nil {
				return fmt.Errorf("read %s: %w", d.end.Device, err)
			}
			handled += n
		}
		sent, wait := w.deliver()
		idle := handled+sent == 0
		watched := poll
		ago = w.late
		if !idle {
			watched, wait, ago = poll[:1], spacing, spacing/2
		}
		since := w.now()
		if err := w.sleep(watched, wait); err != nil {
			return fmt.Errorf("poll link: %w", err)
		}
		if idle { // nothing waited before this, or before we should have been woken
			empty := w.now() - ago
			if wait >= 0 {
				empty = min(empty, since+wait)
			}
			w.devices[0].empty, w.devices[1].empty = empty, empty
		}
		if poll[0].Revents != 0 {
			poll[0].Revents = 0
			w.serve()
		}
	}
	return nil
}

// sleep is sleep by a timer set earlier by as much as timers have been late.
func (w *wire) sleep(fds []unix.PollFd, wait time.Duration) error {
	if wait <= 0 {
		return sleep(fds, wait)
	}
	start := w.now()
	set := max(wait-w.late, 0)
	if err := sleep(fds, set); err != nil {
		return err
	}
	over := w.now() - start - set
	if set > 0 && over >= 0 && over < maxLate { // less than 0: a packet woke us
		w.late += (over - w.late) / 16
	}
	return nil
}

func (w *wire) now() time.Duration { return time.Since(w.start) }

// deliver sends what is due. It returns how many units that was, and the time until
// something else will be due, less than 0 if nothing is on its way.
func (w *wire) deliver() (sent int, wait time.Duration) {
	wait = -1
	for i, p := range w.pipes {
		out := w.devices[1-i]
		if u := p.take(w.now()); u != nil {
			w.bunch.tell(w.now() - u.at)
		}
		for u := p.take(w.now()); u != nil; u = p.take(w.now()) {
			p.taken(u, out.write(u))
			sent++
		}
		if due, ok := p.next(); ok {
			left := max(due-w.now(), 0)
			if wait < 0 || left < wait {
				wait = left
			}
		}
	}
	return sent, wait
}

// read takes a batch of packets from d into p, and returns how many they were. They came about ago; or, too
// many for that, in turn since nothing waited, where that is long ago as somebody was late.
func (w *wire) read(d *device, p *pipe, ago time.Duration) (int, error) {
	looked := w.now()
	came := looked - ago
	p.late = w.bunch.lately()
	if looked-d.empty > bunch {
		p.late = max(p.late, min(came-d.empty, mostLate))
	}
	for i := range readBatch {
		room := w.slabs.room()
		n, ok, err := d.read(room)
		if err != nil || !ok {
			d.empty = looked
			return i, err
		}
		pkt, ok := parse(room[:n])
		if !ok {
			continue
		}
		sl := w.slabs.current
		refs := sl.refs
		p.offer(came, &pkt, sl)
		if sl.refs > refs {
			w.slabs.keep(n)
		}
	}
	return readBatch, nil
}

// serve runs the requests that wait.
func (w *wire) serve() {
	var count [8]byte
	_, _ = unix.Read(w.wake, count[:])
	for {
		select {
		case f := <-w.requests:
			f()
		default:
			return
		}
	}
}
