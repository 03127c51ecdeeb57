package wan

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"godwit/internal/child"
)

// A link's process speaks JSON lines: the first line of its standard input is a setup,
// each line after that a request; it answers every line with one reply. The end of its
// input is the end of the process, so no link outlives who made it.
type (
	setup struct {
		A    End    `json:"a"`
		B    End    `json:"b"`
		Link Link   `json:"link"`
		Seed uint64 `json:"seed"`
		Late bool   `json:"late,omitempty"` // lateFD is given
	}
	request struct {
		Set *Link `json:"set,omitempty"` // nil asks for the counters only
	}
	reply struct {
		Error    string   `json:"error,omitempty"`
		Counters Counters `json:"counters"`
	}
)

func init() { child.Register("link", linkProcess) }

// linkProcess is the main function of a link's process. Its arguments are there for
// people who look at a list of processes.
func linkProcess([]string) int {
	// The terminal's interrupt is for the lab, which takes its links down in order.
	signal.Ignore(syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGPIPE)
	if err := serveLink(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "godwit link:", err)
		return 1
	}
	return 0
}

// serveLink makes the link that in describes and runs it until in ends.
func serveLink(in io.Reader, out io.Writer) error {
	lines := bufio.NewScanner(in)
	answers := json.NewEncoder(out)
	if !lines.Scan() {
		return lines.Err()
	}
	var s setup
	if err := json.Unmarshal(lines.Bytes(), &s); err != nil {
		return fmt.Errorf("read setup: %w", err)
	}
	w, err := openWire(s.A, s.B, s.Link, s.Seed)
	if err != nil {
		_ = answers.Encode(reply{Error: err.Error()})
		return nil
	}
	defer w.close()
	if s.Late {
		w.bunch = openLateness(w.bunch)
	}
	w.devices[0].lost, w.devices[1].lost = w.devices[0].dropped(), w.devices[1].dropped()
	if err := answers.Encode(reply{}); err != nil {
		return fmt.Errorf("answer setup: %w", err)
	}
	ended := make(chan struct{})
	go func() {
		// A loop that failed cannot answer: end the process, and with it the pipe.
		if err := w.run(); err != nil {
			fmt.Fprintln(os.Stderr, "godwit link:", err)
			os.Exit(1)
		}
		close(ended)
	}()
	for lines.Scan() {
		if err := answers.Encode(w.answer(lines.Bytes())); err != nil {
			break
		}
	}
	w.do(func() { w.stop = true })
	<-ended
	return lines.Err()
}

// answer does what one line asks.
func (w *wire) answer(line []byte) reply {
	var r request
	if err := json.Unmarshal(line, &r); err != nil {
		return reply{Error: fmt.Sprintf("read request: %v", err)}
	}
	if r.Set != nil {
		if err := w.set(*r.Set); err != nil {
			return reply{Error: err.Error()}
		}
	}
	return reply{Counters: w.counters()}
}

// set changes the link; on failure it is as before, but for the MTU of one device.
func (w *wire) set(link Link) error {
	if err := link.Check(); err != nil {
		return err
	}
	if mtu := link.MTUBytes(); mtu != w.link.MTUBytes() {
		for _, d := range w.devices {
			if err := d.setMTU(mtu); err != nil {
				return err
			}
		}
	}
	w.link = link
	w.do(func() {
		for i, p := range w.pipes {
			p.set(w.now(), link, carries(link, i))
		}
	})
	return nil
}

func (w *wire) counters() Counters {
	var flows [2]Flow
	var lost []Lost
	w.do(func() {
		for i, p := range w.pipes {
			p.advance(w.now())
			flows[i] = p.flow
			flows[i].Waiting = p.waiting
			lost = p.lost.list(lost)
		}
	})
	for i, d := range w.devices {
		flows[i].DeviceDrop += d.dropped() - d.lost
	}
	return Counters{AB: flows[0], BA: flows[1], Lost: lost}
}
