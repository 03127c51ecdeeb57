package traffic

import (
	"net"
	"testing"
	"time"

	"godwit/lab/traffic/record"
)

// TestNoRoundTripOfTheDead: of a flow whose connection has ended no round trip is told for long, as if there were one yet;
// nor since when it waits, as it is to be heard no more.
func TestNoRoundTripOfTheDead(t *testing.T) {
	for kind, port := range map[string]uint16{Download: record.PortDownload, Upload: record.PortUpload} {
		name, ends := namespace(t), make(chan struct{})
		listen(t, name, port, func(c *net.TCPConn) {
			defer c.Close()
			in, h, err := hello(c)
			if err != nil {
				return
			}
			go func() { <-ends; c.Close() }()
			if kind == Download {
				_, _ = c.Write(record.Append(nil, record.Data, 0, record.Payload(h.Seed, 0, h.Size)))
			}
			for in = in.Grow(2 * record.MaxPayload); ; {
				f, err := in.Next()
				switch {
				case err != nil:
					return
				case f.Kind == record.Data:
					_, _ = c.Write(record.Append(nil, record.Ack, f.Number, nil))
				case f.Kind == record.Ping:
					_, _ = c.Write(record.Append(nil, record.Pong, f.Number, record.Note{RTT: 7 * time.Millisecond}.Append(nil)))
				}
			}
		})
		c := client(t, name)
		begin(t, c, Flow{Name: "x", Kind: kind})
		waitFor(t, c, kind+": a round trip", func(s Sample) bool { return s.RTT != nil && *s.RTT > 0 })
		close(ends)
		var died int64
		waitFor(t, c, kind+": the end", func(s Sample) bool { died = s.Time; return s.Alive == 0 })
		dead := died + int64(fresh+2*sampleEvery) // what was told last is as good until then
		waitFor(t, c, kind+": some time after that", func(s Sample) bool { return s.Time >= dead })
		for range 3 {
			if s := <-c.Samples(); s.RTT != nil || s.KernelRTT != nil || s.WaitingSince != 0 {
				t.Errorf("%s: a sample has a round trip after the end, or that it is waited for: %+v", kind, s)
			}
		}
		r := end(t, c, "x")
		if rtt, known := r.RTT(dead, r.End); known {
			t.Errorf("%s: the round trip is %v after the end", kind, rtt)
		}
		if _, known := r.RTT(r.Start, dead); !known {
			t.Errorf("%s: no round trip is known before the end", kind)
		}
	}
}
