package traffic

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"sync"
	"time"

	"godwit/lab/traffic/record"
)

// datagrams is a flow of kind udp: the guest counts what arrives, and is asked
// for its count every 100 ms.
type datagrams struct {
	Flow
	*tally
	c     *net.UDPConn
	to    netip.AddrPort
	seed  uint32
	size  int // of a datagram's payload: seed and pattern
	quit  chan struct{}
	wait  sync.WaitGroup
	ready chan struct{}

	state    sync.Mutex
	sent     uint64
	stopped  bool
	stats    record.UDPStats
	progress int64 // when a count was seen to have grown, unix ns
}

func newDatagrams(f Flow) *datagrams {
	d := &datagrams{Flow: f, tally: newTally(now()), seed: rand.Uint32(), quit: make(chan struct{}), ready: make(chan struct{})}
	d.size = defaultUDPSize
	if f.Rate > 0 {
		perEvery := f.Rate / 8 * int64(d.Every) / int64(time.Second)
		d.size = int(min(max(perEvery, 64), largestUDPSize))
		if perEvery > largestUDPSize {
			d.Every = time.Duration(float64(d.size*8) / float64(f.Rate) * float64(time.Second))
		}
	}
	return d
}

func (f *datagrams) start(ctx context.Context) error {
	network := "udp4"
	if f.Target.Is6() {
		network = "udp6"
	}
	// Not connected: the client may get another address while it sends.
	c, err := net.ListenUDP(network, nil)
	if err != nil {
		return fmt.Errorf("start traffic %s: %w", f.Name, err)
	}
	f.c, f.to = c, netip.AddrPortFrom(f.Target, f.port())
	f.wait.Go(f.read)
	f.wait.Go(f.send)
	f.wait.Go(f.askAll)
	select {
	case <-f.ready:
		return nil
	case <-ctx.Done():
		err = context.Cause(ctx)
	case <-time.After(startLimit):
		err = fmt.Errorf("no answer within %v", startLimit)
	}
	f.end()
	return fmt.Errorf("start traffic %s: udp to %s: %w", f.Name, f.Target, err)
}

func (f *datagrams) end() {
	close(f.quit)
	f.c.Close()
	f.wait.Wait()
}

func (f *datagrams) send() {
	pace := record.NewPace(f.Every, false)
	defer pace.Stop()
	payload := binary.BigEndian.AppendUint32(nil, f.seed)
	var out []byte
	for pace.Wait(f.quit) {
		f.state.Lock()
		stopped, number := f.stopped, f.sent
		if !stopped {
			f.sent++
		}
		f.state.Unlock()
		if stopped {
			return
		}
		payload = append(payload[:4], record.Payload(f.seed, number, f.size-4)...)
		out = record.Append(out[:0], record.Data, number, payload)
		_, _ = f.c.WriteToUDPAddrPort(out, f.to) // no route for a while: lost, and counted so
	}
}

func (f *datagrams) askAll() {
	tick := time.NewTicker(sampleEvery)
	defer tick.Stop()
	for {
		select {
		case <-f.quit:
			return
		case <-tick.C:
			f.ask()
		}
	}
}

func (f *datagrams) ask() {
	seed := binary.BigEndian.AppendUint32(nil, f.seed)
	_, _ = f.c.WriteToUDPAddrPort(record.Append(nil, record.Stats, uint64(now()), seed), f.to)
}

func (f *datagrams) read() {
	buf := make([]byte, 2048)
	for {
		n, _, err := f.c.ReadFromUDPAddrPort(buf)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			continue
		}
		h, ok := record.Parse(buf[:n])
		body := buf[min(n, record.HeaderSize):n]
		if !ok || h.Kind != record.Stats || int(h.Length) != len(body) || len(body) < 4 {
			continue
		}
		var s record.UDPStats
		if binary.BigEndian.Uint32(body) == f.seed && json.Unmarshal(body[4:], &s) == nil {
			f.counted(s, int64(h.Number))
		}
	}
}

// counted takes the guest's count, asked for at a time; answers may overtake each other.
func (f *datagrams) counted(s record.UDPStats, asked int64) {
	at := now()
	f.roundTrip(at, at-asked)
	f.state.Lock()
	defer f.state.Unlock()
	if s.Received <= f.stats.Received {
		return
	}
	f.mu.Lock()
	f.buckets.add(at, int(s.Bytes-f.stats.Bytes))
	f.bytes, f.records = int64(s.Bytes), int64(s.Received)
	f.repeated, f.corrupt = int64(s.Repeated), int64(s.Corrupt)
	f.lost = max(0, int64(s.Next)-int64(s.Received)-int64(s.Corrupt))
	f.mu.Unlock()
	if f.stats.Received == 0 {
		close(f.ready)
	}
	f.stats, f.progress = s, at
}

func (f *datagrams) sample(at int64) Sample {
	s := Sample{Flow: f.Name, Kind: f.Kind, Time: at, Connections: 1}
	f.tally.sample(&s, at, f.unpaced())
	f.state.Lock()
	defer f.state.Unlock()
	if at-f.progress < int64(fresh) {
		s.Alive = 1
	}
	return s
}

// stop sends no more, waits for what is on the way, and takes the last count.
func (f *datagrams) stop() Result {
	end := now()
	f.state.Lock()
	f.stopped = true
	f.state.Unlock()
	for deadline := end + int64(finalWait); now() < deadline; time.Sleep(20 * time.Millisecond) {
		f.ask()
		f.state.Lock()
		all := f.stats.Received+f.stats.Corrupt >= f.sent
		quiet := f.progress > end-int64(fresh) && now()-max(end, f.progress) > int64(fresh)
		f.state.Unlock()
		if all || quiet {
			break
		}
	}
	f.end()
	r := Result{Flow: f.Flow, End: end,
		GapUnknown: "datagrams go one way, and the guest's clock may stand still while it is paused"}
	f.result(&r)
	r.Survived = f.progress > end-int64(fresh)
	r.Lost = max(0, int64(f.sent)-int64(f.stats.Received)-int64(f.stats.Corrupt))
	r.Late, r.GuestGap = int64(f.stats.Late), f.stats.LongestGap
	r.Connections = []Connection{{Survived: r.Survived, First: f.Target, Last: f.progress}}
	return r
}
