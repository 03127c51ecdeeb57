package traffic

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"godwit/lab/traffic/record"
)

// TestFewGreetAtOnce: a guest that thousands ask at once is so late that they ask again. Here
// every question waits for as many others as there may be, or for a while.
func TestFewGreetAtOnce(t *testing.T) {
	const connections = 2 * greetAtOnce
	name := namespace(t)
	var waiting, most, heard atomic.Int64
	listen(t, name, record.PortTicks, func(c *net.TCPConn) {
		defer c.Close()
		in, h, err := hello(c)
		if err != nil {
			return
		}
		heard.Add(1)
		for n := waiting.Add(1); ; {
			if now := most.Load(); now >= n || most.CompareAndSwap(now, n) {
				break
			}
		}
		for start := time.Now(); most.Load() <= greetAtOnce && heard.Load() < connections && time.Since(start) < 300*time.Millisecond; {
			time.Sleep(5 * time.Millisecond)
		}
		waiting.Add(-1)
		_, _ = c.Write(record.Append(nil, record.Data, 0, record.Payload(h.Seed, 0, h.Size)))
		for {
			f, err := in.Next()
			if err != nil {
				return
			}
			_, _ = c.Write(record.Append(nil, record.Pong, f.Number, record.Note{}.Append(nil)))
		}
	})
	c := client(t, name)
	begin(t, c, Flow{Name: "x", Kind: Ticks, Connections: connections})
	end(t, c, "x")
	if n := most.Load(); n > greetAtOnce || heard.Load() != connections {
		t.Errorf("%d of %d asked at once, want %d at most", n, heard.Load(), greetAtOnce)
	}
}

// TestUnreachableAtFirst: a guest that its router does not find for a moment is asked again.
func TestUnreachableAtFirst(t *testing.T) {
	name, _ := guest(t)
	const there = "192.0.2.7"
	run(t, name, "ip", "route", "add", "unreachable", there)
	c := client(t, name)
	started := make(chan error, 1)
	go func() { started <- c.Start(Flow{Name: "x", Kind: Ticks, Target: netip.MustParseAddr(there)}) }()
	select {
	case err := <-started:
		t.Fatalf("it was asked but once: %v", err)
	case <-time.After(2 * unreachableEvery):
	}
	run(t, name, "ip", "addr", "add", there+"/32", "dev", "lo")
	run(t, name, "ip", "route", "del", "unreachable", there)
	if err := <-started; err != nil {
		t.Fatal(err)
	}
	end(t, c, "x")
}

// TestStartCalledOff: a flow that nobody answers is waited for no longer than the one who asked for it wants,
// and leaves nothing.
func TestStartCalledOff(t *testing.T) {
	name := namespace(t)
	listen(t, name, record.PortTicks, func(*net.TCPConn) {})
	c := client(t, name)
	why := errors.New("no more of it")
	for _, kind := range []string{Ticks, UDP} {
		for _, after := range []time.Duration{0, 200 * time.Millisecond} {
			ctx, cancel := context.WithCancelCause(t.Context())
			time.AfterFunc(after, func() { cancel(why) })
			began := time.Now()
			err := c.StartUntil(ctx, Flow{Name: "x", Kind: kind, Target: loopback, Connections: 1})
			if took := time.Since(began); err == nil || !strings.HasSuffix(err.Error(), why.Error()) || took > startLimit/2 {
				t.Errorf("%s, called off after %v: %v after %v", kind, after, err, took)
			}
		}
	}
	begin(t, c, Flow{Name: "x", Kind: Exec, Command: "true"})
	end(t, c, "x")
}
