package traffic

import (
	"net"
	"testing"
	"time"

	"godwit/lab/traffic/record"
	"godwit/netstate/netns"
)

// between passes connections on to the guest's port, through change, which gets
// what the guest sends (down) or the client (up).
func between(t *testing.T, from, to string, port uint16, change func(down bool, offset int64, b []byte)) {
	listen(t, from, port, func(c *net.TCPConn) {
		defer c.Close()
		var g *net.TCPConn
		err := netns.Do(to, func() (err error) {
			g, err = net.DialTCP("tcp4", nil, &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: int(port)})
			return err
		})
		if err != nil {
			return
		}
		defer g.Close()
		pass := func(to, from *net.TCPConn, down bool) {
			buf := make([]byte, 64<<10)
			for at := int64(0); ; {
				n, err := from.Read(buf)
				if err != nil {
					to.Close()
					return
				}
				change(down, at, buf[:n])
				if _, err := to.Write(buf[:n]); err != nil {
					from.Close()
					return
				}
				at += int64(n)
			}
		}
		go pass(g, c, false)
		pass(c, g, true)
	})
}

// flip inverts the byte at a place of a stream that it is shown in pieces, and says whether it has come.
func flip(place, offset int64, b []byte) bool {
	i := place - offset
	if i < 0 || i >= int64(len(b)) {
		return false
	}
	b[i] ^= 0xff
	return true
}

func TestOneFlippedByteIsFound(t *testing.T) {
	inner, _ := guest(t)
	tests := []struct {
		kind  string
		port  uint16
		place int64
		down  bool
		lost  int64
	}{
		{kind: Download, port: record.PortDownload, place: 100_000, down: true},
		{kind: Upload, port: record.PortUpload, place: 100_000},
		{kind: Ticks, port: record.PortTicks, place: 20*84 + 50, down: true},
	}
	for _, test := range tests {
		t.Run(test.kind, func(t *testing.T) {
			outer := namespace(t)
			flipped := make(chan struct{}, 8) // more than there are connections
			between(t, outer, inner, test.port, func(down bool, offset int64, b []byte) {
				if down == test.down && flip(test.place, offset, b) {
					flipped <- struct{}{}
				}
			})
			c := client(t, outer)
			begin(t, c, Flow{Name: "x", Kind: test.kind, Rate: 20e6})
			<-flipped
			found := waitFor(t, c, "the flipped byte", func(s Sample) bool { return s.Corrupt > 0 })
			waitFor(t, c, "what is behind it", func(s Sample) bool { return s.Records > found.Records })
			r := end(t, c, "x")
			if r.Corrupt != 1 || r.Lost > 1 || !r.Survived {
				t.Errorf("corrupt %d, lost %d, survived %v", r.Corrupt, r.Lost, r.Survived)
			}
		})
	}
}

// lie serves ticks with these numbers, then falls silent but for pings; it
// calls over at the end of the numbers.
func lie(numbers []uint64, over func(*net.TCPConn)) func(*net.TCPConn) {
	return func(c *net.TCPConn) {
		defer c.Close()
		in, h, err := hello(c)
		if err != nil {
			return
		}
		go func() {
			for _, n := range numbers {
				_, _ = c.Write(record.Append(nil, record.Data, n, record.Payload(h.Seed, n, h.Size)))
				time.Sleep(10 * time.Millisecond)
			}
			over(c)
		}()
		for {
			f, err := in.Next()
			if err != nil {
				return
			}
			_, _ = c.Write(record.Append(nil, record.Pong, f.Number, record.Note{Retransmits: 7}.Append(nil)))
		}
	}
}

func TestLostAndRepeatedRecordsAreCounted(t *testing.T) {
	name := namespace(t)
	over := make(chan struct{}, 8) // more than there are connections
	listen(t, name, record.PortTicks, lie([]uint64{0, 1, 2, 5, 5, 6, 4, 7, 10}, func(*net.TCPConn) { over <- struct{}{} }))
	c := client(t, name)
	begin(t, c, Flow{Name: "x", Kind: Ticks})
	<-over
	waitFor(t, c, "all records, and a pong", func(s Sample) bool { return s.Records >= 7 && s.Retransmits >= 7 })
	r := end(t, c, "x")
	if r.Lost != 4 || r.Repeated != 2 || r.Records != 7 || r.Retransmits < 7 {
		t.Errorf("lost %d, repeated %d, records %d, retransmits %d; want 4, 2, 7, 7", r.Lost, r.Repeated, r.Records, r.Retransmits)
	}
}

func TestResetConnectionDidNotSurvive(t *testing.T) {
	name := namespace(t)
	reset := func(c *net.TCPConn) { _ = c.SetLinger(0); c.Close() }
	listen(t, name, record.PortTicks, lie([]uint64{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19}, reset))
	c := client(t, name)
	begin(t, c, Flow{Name: "x", Kind: Ticks})
	for until := time.Now().Add(20 * time.Second); time.Now().Before(until); {
		if s := <-c.Samples(); s.Flow == "x" && s.Alive == 0 {
			break
		}
	}
	time.Sleep(300 * time.Millisecond)
	r := end(t, c, "x")
	if r.Survived || r.Connections[0].Error != "connection reset" {
		t.Errorf("survived %v, error %q", r.Survived, r.Connections[0].Error)
	}
	if one := r.Connections[0]; one.Ended <= r.Start || one.Ended > r.End-int64(200*time.Millisecond) || one.Heard == 0 || one.Heard > one.Ended {
		t.Errorf("it ended %v after the flow began, and was last heard after %v", time.Duration(one.Ended-r.Start), time.Duration(one.Heard-r.Start))
	}
	if gap, ok := r.Gap(r.End-1, r.End); !ok || gap < 200*time.Millisecond {
		t.Errorf("gap at the end %v, %v: a dead connection waits until the end", gap, ok)
	}
}
