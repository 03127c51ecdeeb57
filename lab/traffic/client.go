package traffic

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// Client is a client's process: it runs flows in one network namespace.
// Its methods may be called at the same time.
type Client struct {
	p       *process
	samples chan Sample

	mu    sync.Mutex
	sizes map[string]int // of the flows that were started: their connections
}

// askLimit, and stopLimitOne for each connection of a flow that is stopped, is how long the process
// may take for an answer, much longer than it needs: one that hangs does not keep a run from its end.
const (
	askLimit     = time.Minute
	stopLimitOne = 50 * time.Millisecond
)

// sampleQueue is how many samples may wait to be read: 10 flows for about 25 s.
const sampleQueue = 2560

// StartClient starts a client's process in the namespace ("" is the present
// one). It ends with ctx, with Close, or with the process that started it.
func StartClient(ctx context.Context, namespace string) (*Client, error) {
	c := &Client{samples: make(chan Sample, sampleQueue), sizes: map[string]int{}}
	p, err := startProcess(ctx, namespace, clientChild, func(m message) {
		if m.Sample == nil {
			return
		}
		select {
		case c.samples <- *m.Sample:
		default: // nobody reads them
		}
	})
	if err != nil {
		return nil, err
	}
	c.p = p
	go func() { <-p.done; close(c.samples) }()
	return c, nil
}

// Start starts a flow. It returns nil when every connection has exchanged its
// first records; after an error (which names the flow) nothing is left of it.
// It takes at most 20 s and 5 ms per connection.
func (c *Client) Start(f Flow) error { return c.StartUntil(context.Background(), f) }

// StartUntil is Start, which is called off when ctx ends: its cause is in the error then.
func (c *Client) StartUntil(ctx context.Context, f Flow) error {
	c.mu.Lock()
	c.sizes[f.Name] = f.Connections
	c.mu.Unlock()
	limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), askLimit+time.Duration(f.Connections)*startLimitOne)
	defer cancel()
	id, answer, err := c.p.send(order{Op: "start", Flow: &f})
	if err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() {
		_, _ = c.p.ask(limited, order{Op: "cancel", Start: id, Why: context.Cause(ctx).Error()}) // the start's answer tells
	})
	defer stop()
	_, err = c.p.await(limited, id, answer)
	return err
}

// Look has a sample told that knows of all of a flow's connections where they are now: it is there, or dropped, when
// Look returns. Those of a silent flow are looked at every 10 s else, and thousands in turn. Of a flow whose
// connections are seen in each sample it tells none.
func (c *Client) Look(name string) error {
	ctx, cancel := context.WithTimeout(context.Background(), askLimit)
	defer cancel()
	_, err := c.p.ask(ctx, order{Op: "look", Name: name})
	return err
}

// Stop ends a flow and tells what it was. It takes at most some 3 s, in which
// connections that were silent may show that they still deliver; where thousands are silent, as
// long for each greetAtOnce of them.
func (c *Client) Stop(name string) (Result, error) {
	c.mu.Lock()
	connections := c.sizes[name]
	c.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), askLimit+time.Duration(connections)*stopLimitOne)
	defer cancel()
	m, err := c.p.ask(ctx, order{Op: "stop", Name: name})
	if err != nil {
		return Result{}, err
	}
	if m.Result == nil {
		return Result{}, fmt.Errorf("stop traffic %s: no result", name)
	}
	return *m.Result, nil
}

// Samples are what the flows were in each 100 ms. The channel is closed when
// the process has ended. Samples that nobody reads for long are dropped.
func (c *Client) Samples() <-chan Sample { return c.samples }

// Close ends the process and every flow in it, at most 2 s later.
func (c *Client) Close() error { return c.p.close() }
