package proxy_test

import (
	"cmp"
	"context"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// uplink is a way of lanes over loopback that can be cut: its connections break, and none
// can be opened; or falls silent.
type uplink struct {
	name string
	mu   sync.Mutex
	cut  bool
	via  string // where its connections go instead
	open []net.Conn

	silent atomic.Bool
	slow   atomic.Bool // each write takes a while
	wrote  atomic.Int64
}

func (u *uplink) set(cut bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.cut = cut
	for _, c := range u.open {
		c.Close()
	}
	u.open = nil
}

func (u *uplink) dial(ctx context.Context, addr string) (net.Conn, error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.cut {
		return nil, errors.New("no route to host")
	}
	c, err := new(net.Dialer).DialContext(ctx, "tcp", cmp.Or(u.via, addr))
	if err != nil {
		return nil, err
	}
	u.open = append(u.open, c)
	return silenced{c, u}, nil
}

// silenced is a connection of an uplink that may fall silent: what is written is lost, and nothing comes.
type silenced struct {
	net.Conn
	u *uplink
}

func (c silenced) NetConn() net.Conn { return c.Conn }

func (c silenced) Write(p []byte) (int, error) {
	if c.u.silent.Load() {
		return len(p), nil
	}
	if c.u.slow.Load() {
		time.Sleep(5 * time.Millisecond)
	}
	c.u.wrote.Add(int64(len(p)))
	return c.Conn.Write(p)
}

func (c silenced) Read(p []byte) (int, error) {
	for {
		n, err := c.Conn.Read(p)
		if err != nil || !c.u.silent.Load() {
			return n, err
		}
	}
}

// wrote is how many bytes the source has written on all of its uplinks.
func (f *fakes) wrote() (all int64) {
	for _, u := range f.uplinks {
		all += u.wrote.Load()
	}
	return all
}
