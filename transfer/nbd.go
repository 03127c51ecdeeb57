package transfer

import (
	"context"
	"fmt"
	"maps"
	"net"
	"sync"
	"time"

	"godwit/transfer/nbd"
	"godwit/transfer/pace"
)

// Disk is an export that was asked for, and the connection over which it was granted.
type Disk struct {
	Export nbd.Export
	Conn   net.Conn
}

// AskDisk asks for an export over conn, until ctx ends; on error conn is closed.
func AskDisk(ctx context.Context, conn net.Conn, name string) (Disk, error) {
	stop := context.AfterFunc(ctx, func() { abort(conn) })
	export, err := nbd.Ask(conn, name)
	if !stop() && err == nil {
		err = ctx.Err()
	}
	if err != nil {
		conn.Close()
		if ctx.Err() != nil {
			err = ctx.Err()
		}
		return Disk{}, fmt.Errorf("ask for disk %s: %w", name, err)
	}
	return Disk{export, conn}, nil
}

// grantLimit is how long an NBD client may take for its handshake, which is with us alone.
const grantLimit = 10 * time.Second

// ListenNBD listens on a unix socket at path for an NBD client, and joins each of its
// connections with that of the disk that it asks for; a disk is given once. It owns the
// disks' connections. limit is of the bytes per second towards the disks, of all together; nil: none. Of what was granted to the client see nbd.Grant.
func ListenNBD(ctx context.Context, path string, disks map[string]Disk, limit *pace.Share) (*Plain, error) {
	disks = maps.Clone(disks)
	var mu sync.Mutex
	join := func(ctx context.Context, client net.Conn) (net.Conn, error) {
		mu.Lock() // one client after the other: who comes next finds what is left
		defer mu.Unlock()
		exports := map[string]nbd.Export{}
		for name, d := range disks {
			exports[name] = d.Export
		}
		stop := context.AfterFunc(ctx, func() { abort(client) })
		defer stop()
		client.SetDeadline(time.Now().Add(grantLimit)) //nolint:errcheck // a unix socket's
		name, err := nbd.Grant(client, exports)
		if err != nil {
			return nil, err
		}
		client.SetDeadline(time.Time{}) //nolint:errcheck // a unix socket's
		conn := disks[name].Conn
		delete(disks, name)
		return conn, nil
	}
	end := func() {
		mu.Lock()
		defer mu.Unlock()
		for _, d := range disks {
			d.Conn.Close()
		}
	}
	p, err := listenPlain(ctx, path, limit, join, end)
	if err != nil {
		end()
	}
	return p, err
}
