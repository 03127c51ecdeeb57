package coding

import (
	"io"
	"net"
)

// Conn is a connection whose other end unpacks what this side sends; what comes from there is plain. A forwarder that is
// given one packs by itself, so that its limit and its counters are of the packed bytes.
type Conn struct {
	net.Conn
	w *Writer
}

// Over makes a Conn.
func Over(conn net.Conn) *Conn { return &Conn{conn, NewWriter(conn)} }

func (c *Conn) Write(p []byte) (int, error) { return c.w.Write(p) }

// CloseWrite ends what this side sends, where the connection can.
func (c *Conn) CloseWrite() error { return closeWrite(c.Conn) }

// NetConn is the connection beneath.
func (c *Conn) NetConn() net.Conn { return c.Conn }

// unpacked is a connection whose other end packs what it sends.
type unpacked struct {
	net.Conn
	r io.Reader
}

// Under unpacks what comes; what this side sends is plain.
func Under(conn net.Conn) (net.Conn, error) {
	r, err := Reader(conn)
	return &unpacked{conn, r}, err
}

func (u *unpacked) Read(p []byte) (int, error) { return u.r.Read(p) }

func (u *unpacked) CloseWrite() error { return closeWrite(u.Conn) }

func (u *unpacked) NetConn() net.Conn { return u.Conn }

// closeWrite ends what this side sends, where the connection can.
func closeWrite(conn net.Conn) error {
	if half, ok := conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return nil
}
