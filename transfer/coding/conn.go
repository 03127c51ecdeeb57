package coding

import "net"

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
func (c *Conn) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return nil
}

// NetConn is the connection beneath.
func (c *Conn) NetConn() net.Conn { return c.Conn }
