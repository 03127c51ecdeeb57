package transfer

import (
	"context"
	"fmt"
	"io"
	"net"
	"sync"

	"godwit/internal/lasting"
	"godwit/internal/socket"
)

// Plain is a forwarder that knows nothing of what it carries, such as a disk. Its streams
// are equal and independent: none is the main one, and one that breaks breaks alone.
type Plain struct {
	listener net.Listener
	count    counters
	ctx      context.Context
	cancel   context.CancelCauseFunc
	done     chan struct{}

	mu  sync.Mutex
	err error // of the first stream that broke
}

// maxPlain bounds how many streams may be open at once.
const maxPlain = 64

// joiner finds the other connection for the one that was accepted, and who else hears what comes by that; nil: nobody.
// It must heed its context.
type joiner func(ctx context.Context, accepted net.Conn) (other net.Conn, heard io.Writer, err error)

// listenPlain listens on a unix socket at path and joins each connection with one that join
// makes. It lives until ctx ends or Close; the path is removed then, and ended called.
func listenPlain(ctx context.Context, path string, join joiner, ended func()) (*Plain, error) {
	listener, err := socket.Listen(path)
	if err != nil {
		return nil, fmt.Errorf("listen: %w", err)
	}
	p := &Plain{listener: listener, done: make(chan struct{})}
	p.ctx, p.cancel = context.WithCancelCause(ctx)
	go p.run(join, ended)
	return p, nil
}

func (p *Plain) run(join joiner, ended func()) {
	defer close(p.done)
	defer ended()
	stop := context.AfterFunc(p.ctx, func() { p.listener.Close() })
	defer stop()
	var streams sync.WaitGroup
	slots := make(chan struct{}, maxPlain)
	comes := lasting.Listener(p.listener, nil) // who cannot be taken just now waits
	for n := 0; ; n++ {
		conn, err := comes.Accept()
		if err != nil {
			break
		}
		select {
		case slots <- struct{}{}:
		default:
			socket.Abort(conn)
			continue
		}
		p.count.streams.Add(1)
		streams.Go(func() {
			defer func() { <-slots }()
			if err := p.serve(n, conn, join); err != nil && p.ctx.Err() == nil {
				p.mu.Lock()
				if p.err == nil {
					p.err = err
				}
				p.mu.Unlock()
			}
		})
	}
	p.listener.Close()
	streams.Wait()
}

func (p *Plain) serve(n int, accepted net.Conn, join joiner) error {
	other, heard, err := join(p.ctx, accepted)
	if err != nil {
		socket.Abort(accepted)
		return &SideError{Stream: n, Side: QEMU, Op: "handshake", Err: err}
	}
	b := &bridge{
		stream: n, from: end{accepted, QEMU}, to: end{other, Peer},
		forward: &p.count.forward, back: &p.count.back, heard: heard,
	}
	return b.run(p.ctx)
}

// Stats returns the counters so far, also after the end. Of the hold's there are none.
func (p *Plain) Stats() Stats {
	return Stats{
		Streams: int(p.count.streams.Load()), Forward: p.count.forward.Load(), Back: p.count.back.Load(),
	}
}

// Err is why the first of the streams that broke did so; nil if none has.
func (p *Plain) Err() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.err
}

// Close ends all streams and waits for that: less than a second, or as long as the farewells of disks' ways take (package
// pipe), less than two. QEMU's connections are closed first, at once.
func (p *Plain) Close() {
	p.cancel(errClosed)
	<-p.done
}
