package inlet

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"time"

	"godwit/internal/lasting"
	"godwit/transfer/qstream"
	"godwit/transfer/wire"
)

const (
	// firstClient is how long an inlet waits for the proxy that had it started.
	firstClient = 30 * time.Second
	// farewell is how long a client has to hear what became of QEMU's connection.
	farewell = 3 * time.Second
)

// server is an inlet.
type server struct {
	writer *qstream.Writer // of the client's goroutine, of which there is one at a time
	gone   chan struct{}   // closed: QEMU's connection has ended

	mu       sync.Mutex
	qemu     net.Conn // nil: not begun
	prologue []byte
	blocks   qstream.Blocks
	missing  *Missing
	asked    []uint64 // by QEMU, in its order; some may be there by now
	client   *client  // the newest; nil: there is none
	over     *Event   // what became of QEMU's stream
	broken   string
}

// client is a proxy as an inlet sees it.
type client struct {
	conn  *net.UnixConn
	done  chan struct{}
	queue chan []uint64 // asked; closed when nothing follows
	ended bool          // queue is closed

	prologue, devices []byte // until Begin
	runs              []wire.Run
}

// Serve is an inlet on listener, which it closes, until its end.
func Serve(listener *net.UnixListener) error {
	defer listener.Close()
	s := &server{gone: make(chan struct{})}
	arrivals, stop := make(chan *net.UnixConn), make(chan struct{})
	defer close(stop)
	go arrive(listener, arrivals, stop)
	return s.run(arrivals)
}

// arrive hears clients until the listener is closed, or stop is. Without another client what is missing may never come.
func arrive(listener net.Listener, arrivals chan<- *net.UnixConn, stop <-chan struct{}) {
	listener = lasting.Listener(listener, func(err error) { fmt.Fprintln(os.Stderr, "inlet: no client is heard:", err) })
	for {
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		select {
		case arrivals <- conn.(*net.UnixConn): //nolint:forcetypeassert // of network unix
		case <-stop:
			conn.Close()
			return
		}
	}
}

func (s *server) run(arrivals <-chan *net.UnixConn) error {
	var now *client
	left := func() <-chan struct{} { // nil without a client
		if now == nil {
			return nil
		}
		return now.done
	}
	limit := time.After(firstClient)
	gone := s.gone
	for {
		select {
		case conn := <-arrivals:
			if now != nil {
				now.conn.CloseRead() //nolint:errcheck // what it gave until now is taken: it had that acknowledged, and it would have to come again
				<-now.done
			}
			now = s.welcome(conn)
		case <-left():
			if now = nil; !s.begun() {
				return nil
			}
			if gone == nil {
				return s.end()
			}
		case <-gone:
			if gone = nil; now == nil {
				return s.end()
			}
			limit = time.After(farewell)
		case <-limit:
			if !s.begun() && now != nil || s.begun() && gone != nil {
				limit = nil // it was the first client's
				continue
			}
			if now != nil {
				now.conn.Close()
				<-now.done
			}
			return s.end()
		}
	}
}

func (s *server) begun() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.qemu != nil
}

// end is what became of it.
func (s *server) end() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.qemu == nil {
		return errors.New("nobody came")
	}
	s.qemu.Close()
	if s.broken != "" {
		return errors.New(s.broken)
	}
	return nil
}

// welcome tells a client all there is to know, and serves it.
func (s *server) welcome(conn *net.UnixConn) *client {
	c := &client{conn: conn, done: make(chan struct{}), queue: make(chan []uint64, 1024)}
	s.mu.Lock()
	s.client = c
	known := s.known()
	if s.over != nil || s.broken != "" {
		s.close(c)
	}
	s.mu.Unlock()
	go func() { // a client that does not read is not waited for
		w := bufio.NewWriterSize(conn, buffer)
		w.Write(known) //nolint:errcheck // its reader finds out
		w.Flush()      //nolint:errcheck // as above
		for asked := range c.queue {
			put(w, kindAsked, wire.AppendFault(nil, asked)) //nolint:errcheck // as above
			w.Flush()                                       //nolint:errcheck // as above
		}
		s.farewell(w)
	}()
	go func() {
		defer close(c.done)
		err := s.listen(c)
		conn.Close()
		s.mu.Lock()
		defer s.mu.Unlock()
		s.close(c)
		if s.client == c {
			s.client = nil
		}
		if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, net.ErrClosed) {
			fmt.Fprintln(os.Stderr, "inlet: client:", err)
		}
	}()
	return c
}

// known is what a client is told first. Call it with mu held, under which nothing waits for a client: QEMU's requests
// wait for it.
func (s *server) known() []byte {
	var out bytes.Buffer
	w := bufio.NewWriter(&out)
	begun := byte(0)
	if s.qemu != nil {
		begun = 1
		s.compact()
		put(w, kindPrologue, s.prologue) //nolint:errcheck // into memory
		putRuns(w, s.missing.Runs())     //nolint:errcheck // as above
		for rest := s.asked; len(rest) > 0; {
			n := min(len(rest), wire.MaxPages)
			put(w, kindAsked, wire.AppendFault(nil, rest[:n])) //nolint:errcheck // as above
			rest = rest[n:]
		}
	}
	put(w, kindState, []byte{begun}) //nolint:errcheck // as above
	w.Flush()                        //nolint:errcheck // as above
	return out.Bytes()
}

// farewell tells what became of QEMU's stream, if that is why the queue has ended.
func (s *server) farewell(w *bufio.Writer) {
	s.mu.Lock()
	over, broken := s.over, s.broken
	s.mu.Unlock()
	switch {
	case over != nil:
		put(w, kindDone, binary.BigEndian.AppendUint32(nil, over.Value)) //nolint:errcheck // as in welcome
	case broken != "":
		put(w, kindBroken, []byte(broken[:min(len(broken), longest)])) //nolint:errcheck // as in welcome
	}
	w.Flush() //nolint:errcheck // as in welcome
}

// close ends a client's queue. Call it with mu held.
func (s *server) close(c *client) {
	if c != nil && !c.ended {
		c.ended = true
		close(c.queue)
	}
}

// compact forgets requests that were served. Call it with mu held.
func (s *server) compact() {
	kept := s.asked[:0]
	for _, page := range s.asked {
		if s.missing.Has(page) {
			kept = append(kept, page)
		}
	}
	s.asked = kept
}

// listen serves a client until it leaves.
func (s *server) listen(c *client) error {
	in := &descriptors{conn: c.conn}
	defer in.close()
	r, buf := bufio.NewReaderSize(in, buffer), make([]byte, wire.MaxBody)
	for {
		k, body, err := get(r, buf)
		if err != nil {
			return err
		}
		switch {
		case !s.begun():
			err = s.prepare(c, k, body, in)
		case k == kindPage || k == kindZero:
			err = s.page(k, body)
		case k == kindFlush:
			err = s.flush()
		default:
			err = fmt.Errorf("message %d after begin", k)
		}
		if err != nil {
			return err
		}
	}
}

// mostDevices bounds the devices' bytes.
const mostDevices = wire.MaxTail

// prepare takes what comes before Begin, and Begin.
func (s *server) prepare(c *client, k kind, body []byte, in *descriptors) error {
	switch k {
	case kindPrologue:
		c.prologue = append(c.prologue[:0], body...)
		return nil
	case kindRuns:
		runs, err := wire.ParseDiscard(body)
		c.runs = append(c.runs, runs...)
		return err
	case kindDevices:
		if len(c.devices)+len(body) > mostDevices {
			return fmt.Errorf("devices of more than %d bytes", mostDevices)
		}
		c.devices = append(c.devices, body...)
		return nil
	case kindBegin:
		return s.begin(c, in.take())
	}
	return fmt.Errorf("message %d before begin", k)
}
