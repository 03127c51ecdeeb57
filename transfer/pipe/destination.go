package pipe

import (
	"context"
	"encoding/binary"
	"net"
	"sync"

	"godwit/transfer/paths"
	"godwit/transfer/wire"
)

// Destination is the end that puts frames in order again. It is for one goroutine that writes and one that reads.
type Destination struct {
	end
	receiver *paths.Receiver

	order sync.Mutex
	next  uint64            // frame
	held  map[uint64][]byte // frames that came before their turn
	bytes int               // of these
	last  *uint64           // frame; nil: not known yet
}

// Accept makes an end that waits for lanes, see Serve. It lives until Close, ctx ends, or the other end gives up.
func Accept(ctx context.Context, id paths.Identity) *Destination {
	d := &Destination{end: end{in: newQueue()}, next: 1, held: map[uint64][]byte{}}
	d.receiver = paths.NewReceiver(ctx, paths.ReceiverConfig{Identity: id, Frame: d.frame, Control: d.control})
	d.session = d.receiver
	go d.watch(ctx)
	return d
}

// Serve serves one lane until it ends, and closes conn.
func (d *Destination) Serve(ctx context.Context, conn net.Conn) error {
	return d.receiver.Serve(ctx, conn)
}

func (d *Destination) frame(number uint64, payload []byte) (missed []uint64, err error) {
	d.order.Lock()
	defer d.order.Unlock()
	if number < d.next {
		return nil, nil
	}
	if d.bytes += len(payload); d.bytes > mostHeld {
		return nil, errFlood
	}
	d.held[number] = append([]byte(nil), payload...)
	return nil, d.deliver()
}

// deliver gives what is due to whoever reads. Under order.
func (d *Destination) deliver() error {
	for {
		payload, ok := d.held[d.next]
		if !ok {
			break
		}
		delete(d.held, d.next)
		d.bytes -= len(payload)
		d.next++
		if err := d.in.push(payload); err != nil {
			return err
		}
	}
	if d.last != nil && d.next > *d.last {
		d.in.end(nil)
	}
	return nil
}

func (d *Destination) control(topic wire.Topic, body []byte) error {
	if topic != wire.TopicBytesEnd || len(body) != 8 {
		return errTopic
	}
	d.order.Lock()
	defer d.order.Unlock()
	last := binary.BigEndian.Uint64(body)
	d.last = &last
	return d.deliver()
}

// shortAnswers are what goes over every path, bytes: that a request was done takes 16 to 32.
const shortAnswers = 1 << 10

// Write sends bytes back: what is short, and a guest that was stopped may wait for, over every path. This end does not
// know which of them is the fastest, or works.
func (d *Destination) Write(p []byte) (written int, err error) {
	for written < len(p) {
		part := p[written:min(len(p), written+frameSize)]
		if err := d.receiver.Control(context.Background(), wire.TopicBytes, append([]byte(nil), part...), len(part) <= shortAnswers); err != nil {
			return written, err
		}
		written += len(part)
	}
	return written, nil
}

// CloseWrite ends the way back.
func (d *Destination) CloseWrite() error { return d.closeWrite(0) }
