package traffic

import (
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"sync"
	"time"

	"godwit/lab/traffic/record"
)

const (
	// countEvery is how often the guest is asked for its count, by each socket in turn, which
	// is how exactly waits are known: of one socket at the least every countEveryMost, but for
	// crowds, where countEveryOne keeps the questions from being a load.
	countEvery     = 10 * time.Millisecond
	countEveryMost = 100 * time.Millisecond
	countEveryOne  = time.Millisecond
	// lateAnswer is how old an answer is of a guest that is behind with its datagrams, or for how long none comes of
	// one that is away: it is asked one time in askSeldom until it has caught up, for its answers are work too,
	// and what waits for a guest that is paused comes all at once.
	lateAnswer = time.Second
	askSeldom  = 10
	// leastUDPSize and largestUDPSize bound a datagram's pattern, bytes.
	leastUDPSize   = 64
	largestUDPSize = 1200
	defaultUDPSize = 200
)

// datagrams is a flow of kind udp: the guest counts what arrives, of all sockets
// together, and is asked for its count by each of them.
type datagrams struct {
	Flow
	*tally
	outlets  []*outlet
	to       netip.AddrPort
	seed     uint32
	size     int           // of a datagram's pattern, bytes
	askEvery time.Duration // of one socket
	quit     chan struct{}
	wait     sync.WaitGroup
	ready    chan struct{}

	state    sync.Mutex
	sent     uint64
	stopped  bool
	since    int64           // what is stopped delivered to the end where it was answered after that, unix ns
	waiting  int             // sockets that have not heard of a datagram yet
	stats    record.UDPStats // of all counters together
	former   record.UDPStats // of those before this one
	ended    []uint32        // the numbers of those
	progress int64           // when the count was seen to have grown, unix ns
	answered int64           // how long the last answer took, ns
	waited   int64           // when the first question was asked after the last answer, unix ns; 0: none was
	holes    []Hole
	refused  string         // see Result.SendError
	times    [1 << 14]int64 // when the last of them were sent, unix ns, by their numbers
}

func newDatagrams(f Flow) *datagrams {
	d := &datagrams{Flow: f, tally: newTally(now()), seed: rand.Uint32(), quit: make(chan struct{}), ready: make(chan struct{})}
	d.size, d.Every = datagramOf(f.each(), f.Every)
	d.askEvery = min(time.Duration(f.Connections)*countEvery, max(countEveryMost, time.Duration(f.Connections)*countEveryOne))
	d.waiting = f.Connections
	return d
}

// datagramOf is the size of the datagrams of a socket that sends at a rate, bit/s, and the
// time between two: that asked for, if they are neither too small nor too large then.
func datagramOf(rate int64, every time.Duration) (size int, _ time.Duration) {
	if rate == 0 {
		return defaultUDPSize, every
	}
	wanted := float64(rate) / 8 * every.Seconds()
	size = int(min(max(wanted, leastUDPSize), largestUDPSize))
	if wanted < leastUDPSize || wanted > largestUDPSize {
		every = apart(size, rate)
	}
	return size, every
}

func (f *datagrams) start(ctx context.Context) (err error) {
	for range f.Connections {
		k, openErr := newOutlet(f.Target.Is6(), f.Connections)
		if openErr != nil {
			for _, k := range f.outlets {
				k.c.Close()
			}
			return fmt.Errorf("start traffic %s: %w", f.Name, openErr)
		}
		f.outlets = append(f.outlets, k)
	}
	f.to = netip.AddrPortFrom(f.Target, f.port())
	for _, k := range f.outlets {
		f.wait.Go(func() { k.read(f) })
	}
	f.wait.Go(f.send)
	f.wait.Go(f.askAll)
	limit := startLimit + time.Duration(f.Connections)*startLimitOne
	select {
	case <-f.ready:
		return nil
	case <-ctx.Done():
		err = context.Cause(ctx)
	case <-time.After(limit):
		err = fmt.Errorf("no answer within %v", limit)
	}
	f.end()
	return fmt.Errorf("start traffic %s: udp to %s: %w", f.Name, f.Target, err)
}

func (f *datagrams) end() {
	close(f.quit)
	for _, k := range f.outlets {
		k.c.Close()
	}
	f.wait.Wait()
}

// send sends one datagram at once, and then by each socket in turn.
func (f *datagrams) send() {
	pace := record.NewPace(max(f.Every/time.Duration(f.Connections), time.Microsecond), false)
	defer pace.Stop()
	payload := binary.BigEndian.AppendUint32(nil, f.seed)
	var out []byte
	for {
		f.state.Lock()
		stopped, number := f.stopped, f.sent
		if !stopped {
			f.sent++
			f.times[number%uint64(len(f.times))] = now()
		}
		f.state.Unlock()
		if stopped {
			return
		}
		payload = append(payload[:4], record.Payload(f.seed, number, f.size)...)
		out = record.Append(out[:0], record.Data, number, payload)
		k := f.outlets[number%uint64(len(f.outlets))]
		if _, err := k.c.WriteToUDPAddrPort(out, f.to); err != nil { // no route for a while: lost, and counted so
			f.notSent(number, err)
		}
		if !pace.Wait(f.quit) {
			return
		}
	}
}

func (f *datagrams) notSent(number uint64, err error) {
	f.state.Lock()
	defer f.state.Unlock()
	if f.refused == "" {
		f.refused = fmt.Sprintf("datagram %d at %s: %v", number, time.Now().UTC().Format("15:04:05.000"), err)
	}
}

// askAll asks by each socket in turn.
func (f *datagrams) askAll() {
	pace := record.NewPace(f.askEvery/time.Duration(f.Connections), true)
	defer pace.Stop()
	for i := 0; pace.Wait(f.quit); i++ {
		if f.asks(i) {
			f.ask(f.outlets[i%len(f.outlets)])
		}
	}
}

// asks says whether the guest is asked at a turn: at the end by every socket that has not been answered lately, however
// busy the guest is.
func (f *datagrams) asks(turn int) bool {
	f.state.Lock()
	defer f.state.Unlock()
	if f.stopped {
		return f.outlets[turn%len(f.outlets)].answered <= f.since
	}
	late := f.answered
	if f.waited > 0 {
		late = max(late, now()-f.waited)
	}
	return late < int64(lateAnswer) || (turn/len(f.outlets))%askSeldom == 0
}

func (f *datagrams) ask(k *outlet) {
	f.state.Lock()
	if f.waited == 0 {
		f.waited = now()
	}
	f.state.Unlock()
	seed := binary.BigEndian.AppendUint32(nil, f.seed)
	_, _ = k.c.WriteToUDPAddrPort(record.Append(nil, record.Stats, uint64(now()), seed), f.to)
}

// counted takes the guest's count, which k asked for at a time; answers may overtake each other.
func (f *datagrams) counted(k *outlet, s record.UDPStats, asked int64) {
	at := now()
	f.roundTrip(at, at-asked)
	f.state.Lock()
	defer f.state.Unlock()
	f.mu.Lock()
	defer f.mu.Unlock()
	k.answered, f.answered, f.waited = at, at-asked, 0
	s, ok := f.whole(s)
	if !ok {
		return
	}
	if s.Received > k.seen {
		if k.seen == 0 {
			if f.waiting--; f.waiting == 0 {
				close(f.ready)
			}
		}
		k.seen = s.Received
		f.gap = max(f.gap, k.waits.arrive(at))
	}
	if arrivals(s) <= arrivals(f.stats) {
		return
	}
	lost := max(0, int64(s.Next)-int64(s.Received)-int64(s.Corrupt))
	f.missed(lost-f.lost, f.stats.Next, s.Next)
	if s.Received > f.stats.Received {
		f.progress = at
	}
	f.buckets.add(at, int(s.Bytes-f.stats.Bytes))
	f.bytes, f.records = int64(s.Bytes), int64(s.Received)
	f.repeated, f.corrupt = int64(s.Repeated), int64(s.Corrupt)
	f.lost, f.stats = lost, s
}

// whole adds to a count what the guest had told of those before it, which it forgot as it booted anew; what it had counted
// and not told is lost. It is false for an answer from before that.
func (f *datagrams) whole(s record.UDPStats) (record.UDPStats, bool) {
	switch {
	case arrivals(s) == 0: // it has heard of nothing, or not again
		return s, true
	case slices.Contains(f.ended, s.Counter):
		return s, false
	case s.Counter != f.stats.Counter && arrivals(f.stats) > 0:
		f.former, f.ended = f.stats, append(f.ended, f.stats.Counter)
	}
	s.Received += f.former.Received
	s.Bytes += f.former.Bytes
	s.Repeated += f.former.Repeated
	s.Late += f.former.Late
	s.Corrupt += f.former.Corrupt
	s.Next, s.LongestGap = max(s.Next, f.former.Next), max(s.LongestGap, f.former.LongestGap)
	return s, true
}

// mostHoles bounds those that a flow keeps: what is lost after them is in the last.
const mostHoles = 64

// missed keeps that so many datagrams of these are missing. Where that is less than none some came late:
// of the last holes, as far as anybody can tell.
func (f *datagrams) missed(lost int64, from, to uint64) {
	if n := len(f.holes); lost > 0 && n < mostHoles {
		f.holes = append(f.holes, Hole{Lost: lost, From: from, To: to, Since: f.sentAt(from), Until: f.sentAt(to - 1)})
		return
	} else if lost > 0 {
		last := &f.holes[n-1]
		last.Lost, last.To, last.Until = last.Lost+lost, to, f.sentAt(to-1)
	}
	for late := -lost; late > 0 && len(f.holes) > 0; {
		last := &f.holes[len(f.holes)-1]
		came := min(late, last.Lost)
		last.Lost -= came
		late -= came
		if last.Lost == 0 {
			f.holes = f.holes[:len(f.holes)-1]
		}
	}
}

// sentAt is when a datagram was sent, unix ns; 0 where that is too long ago to be known.
func (f *datagrams) sentAt(number uint64) int64 {
	if number >= f.sent || f.sent-number > uint64(len(f.times)) {
		return 0
	}
	return f.times[number%uint64(len(f.times))]
}

// arrivals counts every datagram that came, whatever it was like.
func arrivals(s record.UDPStats) uint64 { return s.Received + s.Repeated + s.Corrupt }

// lately is how old what was heard may be of a flow that still delivers.
func (f *datagrams) lately() int64 { return int64(fresh + 2*max(f.Every, f.askEvery)) }

func (f *datagrams) sample(at int64) Sample {
	s := Sample{Flow: f.Name, Kind: f.Kind, Time: at, Connections: len(f.outlets)}
	f.tally.sample(&s, at, f.unpaced())
	f.state.Lock()
	defer f.state.Unlock()
	for _, k := range f.outlets {
		if at-min(k.answered, f.progress) < f.lately() {
			s.Alive++
		}
		f.mu.Lock()
		if last := k.waits.last; last > 0 && at-last > s.Waiting {
			s.Waiting, s.WaitingSince = at-last, last
		}
		f.mu.Unlock()
	}
	return s
}

// stop sends no more, waits for what is on the way, and takes the last count.
func (f *datagrams) stop() Result {
	end := now()
	since := end - f.lately()
	f.state.Lock()
	f.stopped, f.since = true, since
	f.state.Unlock()
	limit := finalWait + time.Duration(f.Connections)*finalWaitOne
	for deadline := end + int64(limit); now() < deadline && !f.settled(end, since); time.Sleep(20 * time.Millisecond) {
		f.ask(f.outlets[0])
	}
	f.end()
	r := Result{Flow: f.Flow, End: end, Survived: f.progress > since}
	f.result(&r)
	r.Lost = max(0, int64(f.sent)-int64(f.stats.Received)-int64(f.stats.Corrupt))
	if r.Lost > 0 && !slices.ContainsFunc(f.outlets, func(k *outlet) bool { return k.answered > end }) {
		r.LostUnknown = fmt.Sprintf("the guest did not tell its count once the flow had ended: %d at most", r.Lost)
	}
	r.Late, r.GuestGap = int64(f.stats.Late), f.stats.LongestGap
	f.missed(r.Lost-f.lost, f.stats.Next, f.sent)
	r.Holes, r.SendError = f.holes, f.refused
	for _, k := range f.outlets {
		k.waits.end(end)
		c := Connection{
			Survived: f.progress > since && k.answered > since, First: f.Target,
		}
		k.waits.describe(&c)
		r.Survived = r.Survived && c.Survived
		r.Connections = append(r.Connections, c)
	}
	return r
}

// settled says whether nothing more is to be expected of a flow that was stopped at end: all
// has come, or no more comes, and every socket was answered since then.
func (f *datagrams) settled(end, since int64) bool {
	f.state.Lock()
	defer f.state.Unlock()
	for _, k := range f.outlets {
		if k.answered <= since {
			return false
		}
	}
	all := f.stats.Received+f.stats.Corrupt >= f.sent
	quiet := f.progress > since && now()-max(end, f.progress) > int64(fresh)
	return all || quiet
}
