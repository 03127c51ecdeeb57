package traffic

import (
	"net"
	"time"

	"godwit/lab/traffic/record"
)

// fullBatch is how many bytes an unpaced upload writes per system call.
const fullBatch = 128 << 10

// upload sends records until the stream ends, the first at once: whatever the rate, the flow begins, and
// is pinged between records that are far apart.
func (s *stream) upload() {
	batch, pace, turns := 1, (*record.Pace)(nil), 1
	if s.flow.Rate == 0 {
		batch = max(1, fullBatch/s.size)
	} else {
		every := apart(s.size, s.flow.each())
		turns = max(1, int(every/sampleEvery))
		pace = record.NewPace(every/time.Duration(turns), false)
		defer pace.Stop()
	}
	heads := make([]byte, (batch+1)*record.HeaderSize)
	bufs := make(net.Buffers, 0, 2*batch+1)
	number := uint64(0)
	for turn := 0; ; turn++ {
		if pace != nil && turn > 0 && !pace.Wait(s.done) {
			return
		}
		bufs = bufs[:0]
		if s.pingDue.Swap(false) {
			s.pings.Add(1)
			head := heads[batch*record.HeaderSize:]
			record.Header{Kind: record.Ping, Number: uint64(now())}.Put(head)
			bufs = append(bufs, head)
		}
		for i := range batch {
			if turn%turns != 0 {
				break // no record is due
			}
			head := heads[i*record.HeaderSize : (i+1)*record.HeaderSize]
			record.Header{Kind: record.Data, Length: uint32(s.size), Number: number}.Put(head)
			bufs = append(bufs, head, record.Payload(s.seed, number, s.size))
			number++
		}
		if len(bufs) == 0 {
			continue
		}
		out := bufs
		s.write.Lock()
		_, err := out.WriteTo(s.c)
		s.write.Unlock()
		if err != nil {
			s.fail(err)
			return
		}
	}
}

// request asks, waits for the answer, and asks again when the interval is over.
func (s *stream) request() {
	pace := record.NewPace(s.flow.Every, true)
	defer pace.Stop()
	for number := uint64(0); ; number++ {
		ask := record.Append(nil, record.Ask, number, record.Payload(s.seed, number, askSize))
		s.asked.Store(now())
		s.write.Lock()
		_, err := s.c.Write(ask)
		s.write.Unlock()
		if err != nil {
			s.fail(err)
			return
		}
		select {
		case <-s.done:
			return
		case <-s.answered:
		}
		if !pace.Wait(s.done) {
			return
		}
	}
}
