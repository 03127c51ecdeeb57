package traffic

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"sync"
	"time"

	"godwit/internal/child"
)

func init() {
	child.Register(clientChild, func([]string) int { return serveClient(os.Stdin, os.Stdout) })
	child.Register(proberChild, func([]string) int { return serveProber(os.Stdin, os.Stdout) })
}

// Names of the child processes.
const (
	clientChild = "client"
	proberChild = "prober"
)

// order is a line on a child's stdin.
type order struct {
	ID int64 `json:"id"`
	// Op: start, cancel, look and stop of the client, targets of the prober.
	Op      string        `json:"op"`
	Flow    *Flow         `json:"flow,omitempty"`
	Name    string        `json:"name,omitempty"`
	Targets []netip.Addr  `json:"targets,omitempty"`
	Every   time.Duration `json:"every_ns,omitempty"`
	Start   int64         `json:"start,omitempty"` // of cancel: the order that started the flow
	Why     string        `json:"why,omitempty"`   // of cancel
}

// message is a line on a child's stdout: the answer to an order (ID not 0),
// a sample, or what a prober saw.
type message struct {
	ID     int64   `json:"id,omitempty"`
	Error  string  `json:"error,omitempty"`
	Result *Result `json:"result,omitempty"`
	Sample *Sample `json:"sample,omitempty"`
	Probed *probed `json:"probed,omitempty"`
}

// runner is a flow of any kind.
type runner interface {
	// start returns when records flow; after an error nothing is left of it.
	start(ctx context.Context) error
	sample(at int64) Sample
	// stop is called once, after a start without error.
	stop() Result
}

// clientProcess is the client child: its flows and where it tells about them.
type clientProcess struct {
	out   outbox
	mu    sync.Mutex
	flows map[string]runner // nil while one starts

	starting map[int64]context.CancelCauseFunc // by order

	begun chan struct{} // a flow began: samples of it are due

	sampling sync.Mutex // one at a time
}

// outbox writes messages one at a time.
type outbox struct {
	mu  sync.Mutex
	enc *json.Encoder
}

func (o *outbox) send(m message) {
	o.mu.Lock()
	defer o.mu.Unlock()
	_ = o.enc.Encode(m) // nobody listens any more: stdin is about to end too
}

// serveClient obeys orders until in ends, then stops everything it started.
func serveClient(in io.Reader, out io.Writer) int {
	p := &clientProcess{out: outbox{enc: json.NewEncoder(out)}, flows: map[string]runner{}, starting: map[int64]context.CancelCauseFunc{}, begun: make(chan struct{}, 1)}
	ctx, cancel := context.WithCancel(context.Background())
	go p.sampleAll(ctx)
	orders := json.NewDecoder(in)
	for {
		var o order
		if orders.Decode(&o) != nil {
			break
		}
		within, done := p.within(ctx, o) // before the next order, which may call this one off
		go func() {
			defer done()
			p.out.send(p.obey(within, o))
		}()
	}
	cancel()
	p.killPrograms()
	return 0
}

// within is a context for an order, which ends when it is called off.
func (p *clientProcess) within(ctx context.Context, o order) (_ context.Context, done func()) {
	if o.Op != "start" {
		return ctx, func() {}
	}
	ctx, cancel := context.WithCancelCause(ctx)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.starting[o.ID] = cancel
	return ctx, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.starting, o.ID)
		cancel(nil)
	}
}

// callOff ends a start that is under way; of one that is over it does nothing.
func (p *clientProcess) callOff(start int64, why string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if cancel := p.starting[start]; cancel != nil {
		cancel(errors.New(why))
	}
}

func (p *clientProcess) obey(ctx context.Context, o order) message {
	m := message{ID: o.ID}
	var err error
	switch {
	case o.Op == "start" && o.Flow != nil:
		err = p.begin(ctx, *o.Flow)
	case o.Op == "cancel":
		p.callOff(o.Start, o.Why)
	case o.Op == "look":
		p.look(o.Name)
	case o.Op == "stop":
		m.Result, err = p.finish(o.Name)
	default:
		err = fmt.Errorf("unknown order %q", o.Op)
	}
	if err != nil {
		m.Error = err.Error()
	}
	return m
}

func (p *clientProcess) begin(ctx context.Context, f Flow) error {
	if err := f.check(); err != nil {
		return err
	}
	var r runner
	switch f.Kind {
	case Ticks, Download, Upload, Requests:
		r = newStreams(f)
	case UDP:
		r = newDatagrams(f)
	case Iperf3, Exec:
		r = newProgram(f)
	default:
		return fmt.Errorf("start traffic %s: unknown kind %q", f.Name, f.Kind)
	}
	p.mu.Lock()
	if _, taken := p.flows[f.Name]; taken {
		p.mu.Unlock()
		return fmt.Errorf("start traffic %s: runs already", f.Name)
	}
	p.flows[f.Name] = nil
	p.mu.Unlock()
	err := r.start(ctx)
	p.mu.Lock()
	defer p.mu.Unlock()
	if err != nil {
		delete(p.flows, f.Name)
		return err
	}
	p.flows[f.Name] = r
	select {
	case p.begun <- struct{}{}:
	default:
	}
	return nil
}

func (p *clientProcess) finish(name string) (*Result, error) {
	p.mu.Lock()
	r := p.flows[name]
	if r != nil {
		delete(p.flows, name)
	}
	p.mu.Unlock()
	if r == nil {
		return nil, fmt.Errorf("stop traffic %s: does not run", name)
	}
	if s, ok := r.(*streams); ok && s.Silent { // what has come of its connections since the last sample, up to 10 s ago
		p.sample(r, now())
	}
	result := r.stop()
	return &result, nil
}

// look tells a sample of a flow for which every connection was looked at, where samples alone do so too seldom. Of a
// flow that does not run there is nothing to tell.
func (p *clientProcess) look(name string) {
	p.mu.Lock()
	s, ok := p.flows[name].(*streams)
	p.mu.Unlock()
	if !ok || !s.seldom() {
		return
	}
	for _, k := range s.all {
		k.look()
	}
	p.sample(s, now())
}

// sample tells a sample of a flow.
func (p *clientProcess) sample(r runner, at int64) {
	p.sampling.Lock()
	defer p.sampling.Unlock()
	s := r.sample(at)
	p.out.send(message{Sample: &s})
}

func (p *clientProcess) sampleAll(ctx context.Context) {
	rest, every := 0, sampleEvery // turns until silent flows are sampled, and from one sample to the next
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		next := sampleEvery
		select {
		case <-ctx.Done():
			return
		case <-p.begun:
			rest = 0
		case <-tick.C:
			some, turns := p.due(rest <= 0)
			if rest <= 0 {
				rest = silentTurns
			}
			rest, next = rest-turns, sampleEvery*time.Duration(turns)
			at := now()
			for _, r := range some {
				p.sample(r, at)
			}
		}
		if next != every {
			every = next
			tick.Reset(every)
		}
	}
}

// due are the flows to be sampled, silent ones now and then, and after how many turns the next are.
func (p *clientProcess) due(all bool) (some []runner, turns int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	turns = 1
	if len(p.flows) > 0 {
		turns = silentTurns
	}
	for _, r := range p.flows {
		s, ok := r.(*streams)
		rare := ok && s.Silent
		if !rare {
			turns = 1
		}
		if r != nil && (all || !rare) {
			some = append(some, r)
		}
	}
	return some, turns
}

// killPrograms ends what would outlive this process; sockets end with it.
func (p *clientProcess) killPrograms() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, r := range p.flows {
		if g, ok := r.(*program); ok {
			g.kill()
		}
	}
}
