package traffic

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"net"

	"godwit/lab/traffic/record"
)

// outlet is one socket of a flow of kind udp. It is not connected: the client may get another
// address while it sends.
type outlet struct {
	c        *net.UDPConn
	seen     uint64 // datagrams that the guest had counted when it last answered here
	answered int64  // when that was, unix ns
	waits    *waits // between answers that told of more; guarded by tally.mu, too
}

// newOutlet opens one of so many sockets.
func newOutlet(v6 bool, of int) (*outlet, error) {
	network := "udp4"
	if v6 {
		network = "udp6"
	}
	c, err := net.ListenUDP(network, nil)
	if err != nil {
		return nil, err
	}
	return &outlet{c: c, waits: newWaits(of)}, nil
}

// read takes answers until the socket is closed.
func (k *outlet) read(f *datagrams) {
	buf := make([]byte, 2048)
	for {
		n, _, err := k.c.ReadFromUDPAddrPort(buf)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			continue
		}
		h, ok := record.Parse(buf[:n])
		body := buf[min(n, record.HeaderSize):n]
		if !ok || h.Kind != record.Stats || int(h.Length) != len(body) || len(body) < 4 {
			continue
		}
		var s record.UDPStats
		if binary.BigEndian.Uint32(body) == f.seed && json.Unmarshal(body[4:], &s) == nil {
			f.counted(k, s, int64(h.Number))
		}
	}
}
