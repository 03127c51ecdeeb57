package transfer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"sync"
	"time"

	"godwit/internal/socket"
	"godwit/transfer/nbd"
)

// Disk is an export that was asked for, and the connection over which it was granted.
type Disk struct {
	Export nbd.Export
	Conn   net.Conn
	Heard  io.Writer // hears what the client asks once it was granted; nil: nobody does
}

// AskDisk asks for an export over conn, until ctx ends; on error conn is closed.
func AskDisk(ctx context.Context, conn net.Conn, name string) (Disk, error) {
	stop := context.AfterFunc(ctx, func() { socket.Abort(conn) })
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
	return Disk{Export: export, Conn: conn}, nil
}

// grantLimit is how long an NBD client may take for its handshake, which is with us alone.
const grantLimit = 10 * time.Second

// ListenNBD listens on a unix socket at path for an NBD client, and joins each of its
// connections with that of the disk that it asks for; a disk is given once. It owns the
// disks' connections. Of what was granted to the client see nbd.Grant.
func ListenNBD(ctx context.Context, path string, disks map[string]Disk) (*Plain, error) {
	disks = maps.Clone(disks)
	var mu sync.Mutex
	join := func(ctx context.Context, client net.Conn) (net.Conn, io.Writer, error) {
		mu.Lock() // one client after the other: who comes next finds what is left
		defer mu.Unlock()
		exports := map[string]nbd.Export{}
		for name, d := range disks {
			exports[name] = d.Export
		}
		stop := context.AfterFunc(ctx, func() { socket.Abort(client) })
		defer stop()
		client.SetDeadline(time.Now().Add(grantLimit)) //nolint:errcheck // a unix socket's
		name, err := nbd.Grant(client, exports)
		if err != nil {
			return nil, nil, err
		}
		client.SetDeadline(time.Time{}) //nolint:errcheck // a unix socket's
		d := disks[name]
		delete(disks, name)
		return d.Conn, d.Heard, nil
	}
	end := func() {
		mu.Lock()
		defer mu.Unlock()
		for _, d := range disks {
			d.Conn.Close()
		}
	}
	p, err := listenPlain(ctx, path, join, end)
	if err != nil {
		end()
	}
	return p, err
}

// ServeDisk is the other end of a disk that no QEMU serves: what comes over conn, by NBD, goes to a store of so many bytes.
// It returns when the stream has ended, nil if cleanly, and closes conn in any case. heard is as in nbd.Serve.
func ServeDisk(conn net.Conn, name string, size int64, to nbd.Store, heard *nbd.Digest) error {
	err := nbd.Serve(conn, name, uint64(size), to, heard) //nolint:gosec // of a file
	if half, ok := conn.(interface{ CloseWrite() error }); ok && err == nil {
		if err = half.CloseWrite(); err == nil {
			err = ended(conn)
		}
	}
	return errors.Join(err, conn.Close())
}

// ended waits for the end of what comes, of which nothing is left.
func ended(conn net.Conn) error {
	n, err := conn.Read(make([]byte, 1))
	switch {
	case n > 0:
		return errors.New("bytes after an NBD client's farewell")
	case errors.Is(err, io.EOF):
		return nil
	}
	return err
}
