package serve

import (
	"io"
	"net"
	"time"

	"godwit/lab/traffic/record"
)

const (
	mostPings    = 16 // that wait for their answers; more wait in the socket
	defaultEvery = 10 * time.Millisecond
	// fullBatch is how many bytes an unpaced download writes per system call.
	fullBatch = 64 << 10
	// uploadBuffer holds the largest record twice.
	uploadBuffer = 2 * (record.MaxPayload + record.HeaderSize)
)

// ticks sends one record per interval. Time spent paused or blocked is not
// made up for: a tick tells that the guest lives now.
func (c *conn) ticks(h record.Hello) error {
	return c.produce(h, record.NewPace(interval(h), true), 1)
}

// interval is the time between two ticks.
func interval(h record.Hello) time.Duration {
	if h.Every == 0 {
		return defaultEvery
	}
	return h.Every
}

// download sends records at the rate asked for, or as fast as the socket takes them.
func (c *conn) download(h record.Hello) error {
	if h.Rate == 0 {
		return c.produce(h, nil, max(1, fullBatch/h.Size))
	}
	every := time.Duration(float64(h.Size*8) / float64(h.Rate) * float64(time.Second))
	return c.produce(h, record.NewPace(max(every, time.Microsecond), false), 1)
}

// produce writes records until the client ends the stream, batch of them per call, waiting for pace (if any) before
// each batch but the first. Between them it answers the client's pings, but none before a record that is due: by that
// the client hears that the guest lives.
func (c *conn) produce(h record.Hello, pace *record.Pace, batch int) error {
	pings, gone, done := make(chan uint64, mostPings), make(chan struct{}), make(chan struct{})
	go func() { defer close(gone); c.hearPings(pings, done) }()
	defer func() { close(done); c.Close(); <-gone }()
	if pace != nil {
		defer pace.Stop()
	}
	records := newRecords(batch)
	for number := uint64(0); ; number += uint64(batch) {
		if err := records.write(c.TCPConn, h, number); err != nil {
			return err
		}
		if more, err := c.between(pace, pings, gone); !more || err != nil {
			return err
		}
	}
}

// records are what one call writes, whose room is used again.
type records struct {
	heads     []byte
	all, left net.Buffers // left: what writes consumes
}

func newRecords(batch int) *records {
	return &records{heads: make([]byte, batch*record.HeaderSize), all: make(net.Buffers, 2*batch)}
}

// write writes those from number on.
func (r *records) write(w io.Writer, h record.Hello, number uint64) error {
	for i := range len(r.all) / 2 {
		head := r.heads[i*record.HeaderSize : (i+1)*record.HeaderSize]
		record.Header{Kind: record.Data, Length: uint32(h.Size), Number: number}.Put(head)
		r.all[2*i], r.all[2*i+1] = head, record.Payload(h.Seed, number, h.Size)
		number++
	}
	r.left = r.all
	_, err := r.left.WriteTo(w)
	return err
}

// between answers the pings that have come, and those that come until the next record is due. It says whether the
// client still listens.
func (c *conn) between(pace *record.Pace, pings <-chan uint64, gone <-chan struct{}) (bool, error) {
	if pace == nil {
		return c.await(record.Overdue, func() bool { return false }, pings, gone)
	}
	return c.await(pace.Next(), pace.Due, pings, gone)
}

// await is between, of a record that is due as due says. late: it is already, though due has not said so yet.
func (c *conn) await(due <-chan time.Time, late func() bool, pings <-chan uint64, gone <-chan struct{}) (bool, error) {
	for {
		if err := c.answer(pings); err != nil {
			return false, err
		}
		select {
		case <-gone:
			return false, nil
		case <-due:
			return true, nil
		case n := <-pings:
			c.asked = append(c.asked, n)
			if late() {
				return true, nil
			}
		}
	}
}

// answer answers the pings that have come by now.
func (c *conn) answer(pings <-chan uint64) error {
	for {
		for _, n := range c.asked {
			if _, err := c.Write(c.pong(nil, n)); err != nil {
				return err
			}
		}
		c.asked = c.asked[:0]
		select {
		case n := <-pings:
			c.asked = append(c.asked, n)
		default:
			return nil
		}
	}
}

// upload checks every byte of the client's records and acknowledges each; the
// acknowledgements of what one read brought leave in one write.
func (c *conn) upload(h record.Hello) error {
	c.in = c.in.Grow(uploadBuffer)
	var out []byte
	for {
		f, err := c.in.Next()
		if err != nil {
			return err
		}
		switch f.Kind {
		case record.Data:
			ack := record.Header{Kind: record.Ack, Number: f.Number}
			if f.Skipped > 0 || !record.Intact(h.Seed, f.Number, f.Payload) {
				ack.Flags = record.Corrupt
			}
			var head [record.HeaderSize]byte
			ack.Put(head[:])
			out = append(out, head[:]...)
		case record.Ping:
			out = c.pong(out, f.Number)
		}
		if len(out) > 0 && !c.in.Ready() {
			if _, err := c.Write(out); err != nil {
				return err
			}
			out = out[:0]
		}
	}
}

// requests answers each question with a record of the size in the hello.
func (c *conn) requests(h record.Hello) error {
	for {
		f, err := c.in.Next()
		if err != nil {
			return err
		}
		var out []byte
		switch f.Kind {
		case record.Ask:
			out = record.Append(nil, record.Answer, f.Number, record.Payload(h.Seed, f.Number, h.Size))
			if f.Skipped > 0 || !record.Intact(h.Seed, f.Number, f.Payload) {
				head := record.Header{Kind: record.Answer, Flags: record.Corrupt, Length: uint32(h.Size), Number: f.Number}
				head.Put(out)
			}
		case record.Ping:
			out = c.pong(nil, f.Number)
		default:
			continue
		}
		if _, err := c.Write(out); err != nil {
			return err
		}
	}
}
