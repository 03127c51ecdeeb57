// Package serve is the guest's end of the lab's traffic: small services that
// send, swallow and answer numbered records whose every byte is known.
//
// It runs inside emulated guests, so it computes as little as it can. The wire
// format is package record's.
package serve

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"sync/atomic"
	"syscall"
	"time"

	"godwit/lab/traffic/record"
)

// keepAlive is after how long without a word a client is asked whether it is there, as kernels
// do by themselves where a server wants it: an idle connection is a silent one.
const keepAlive = 2 * time.Hour

// services are the stream services by port.
var services = map[int]func(*conn, record.Hello) error{
	record.PortTicks:    (*conn).ticks,
	record.PortDownload: (*conn).download,
	record.PortUpload:   (*conn).upload,
	record.PortRequests: (*conn).requests,
}

// Start opens every service on all addresses of the current network namespace,
// IPv4 and (where the kernel has it) IPv6; streams are MPTCP where a client
// asks for it. When it returns nil, clients can connect. The services end when
// ctx does; on an error nothing is left open. Ports in except are left to others.
func Start(ctx context.Context, except ...int) error {
	ctx, cancel := context.WithCancel(ctx)
	for port, service := range services {
		if slices.Contains(except, port) {
			continue
		}
		if err := serveTCP(ctx, port, service); err != nil {
			cancel()
			return err
		}
	}
	for port, answer := range map[int]func() answerer{
		record.PortUDP: newCounts, record.PortEcho: newEcho,
	} {
		if slices.Contains(except, port) {
			continue
		}
		if err := bothFamilies("udp", port, func(network, address string) error {
			return listenUDP(ctx, network, address, answer())
		}); err != nil {
			cancel()
			return err
		}
	}
	context.AfterFunc(ctx, cancel)
	return nil
}

func serveTCP(ctx context.Context, port int, service func(*conn, record.Hello) error) error {
	return bothFamilies("tcp", port, func(network, address string) error {
		return listenTCP(ctx, network, address, service)
	})
}

// bothFamilies opens a port once for IPv4 and once for IPv6: sockets of one
// family have addresses of one kind, which MPTCP's address events are simpler with.
func bothFamilies(network string, port int, open func(network, address string) error) error {
	p := strconv.Itoa(port)
	if err := open(network+"4", "0.0.0.0:"+p); err != nil {
		return fmt.Errorf("serve %s port %d: %w", network, port, err)
	}
	err := open(network+"6", "[::]:"+p)
	if errors.Is(err, syscall.EAFNOSUPPORT) || errors.Is(err, syscall.EADDRNOTAVAIL) {
		return nil // no IPv6 in this kernel or namespace
	}
	if err != nil {
		return fmt.Errorf("serve %s port %d: %w", network, port, err)
	}
	return nil
}

func listenTCP(ctx context.Context, network, address string, service func(*conn, record.Hello) error) error {
	var lc net.ListenConfig
	lc.SetMultipathTCP(true)
	lc.KeepAlive = keepAlive
	l, err := lc.Listen(ctx, network, address)
	if err != nil {
		return err
	}
	context.AfterFunc(ctx, func() { l.Close() })
	var open atomic.Int64
	go func() {
		for {
			c, err := l.Accept()
			if err == nil {
				open.Add(1)
				go func() {
					defer open.Add(-1)
					serveOne(ctx, c.(*net.TCPConn), open.Load() > roomy, service)
				}()
				continue
			}
			if ctx.Err() != nil || errors.Is(err, net.ErrClosed) {
				return
			}
			time.Sleep(10 * time.Millisecond) // out of descriptors, or a client gone already
		}
	}()
	return nil
}

// roomy is how many connections of a service may have as large a receive buffer as the kernel
// finds good. What many that wait for a busy guest's processor can fill must fit its memory:
// where it does not, MPTCP connections stand still (see tune in cmd/guest).
const (
	roomy       = 4
	crowdBuffer = 256 << 10
)

func serveOne(ctx context.Context, c *net.TCPConn, crowded bool, service func(*conn, record.Hello) error) {
	if crowded {
		_ = c.SetReadBuffer(crowdBuffer)
	}
	newConn(ctx, c).run(service)
}

// start is the zero of the guest's own clock.
var start = time.Now()

// clock is the guest's monotonic time in ns.
func clock() int64 { return int64(time.Since(start)) }
