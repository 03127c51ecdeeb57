package traffic

import (
	"net"
	"net/netip"
	"testing"
	"time"

	"godwit/internal/need"
	"godwit/lab/traffic/record"
	"godwit/netstate/netns"
)

func TestEveryKindDeliversWithoutLoss(t *testing.T) {
	need.Lab(t) // rates are judged
	name, _ := guest(t)
	c := client(t, name)
	flows := []Flow{
		{Name: "ticks", Kind: Ticks, MPTCP: true},
		{Name: "ticks6", Kind: Ticks, MPTCP: true, Target: netip.IPv6Loopback()},
		{Name: "download", Kind: Download, MPTCP: true, Rate: 80e6},
		{Name: "upload", Kind: Upload, MPTCP: true, Rate: 80e6},
		{Name: "requests", Kind: Requests, MPTCP: true},
		{Name: "many", Kind: Ticks, MPTCP: true, Connections: 20, Every: 50 * time.Millisecond},
		{Name: "plain", Kind: Ticks},
		{Name: "udp", Kind: UDP, Rate: 8e6},
		{Name: "slow datagrams", Kind: UDP, Rate: 20e3, Connections: 3},
		{Name: "many downloads", Kind: Download, Rate: 8e6, Connections: 4},
		{Name: "many uploads", Kind: Upload, Rate: 8e6, Connections: 4},
		{Name: "ticks of a rate", Kind: Ticks, Rate: 102400, Connections: 2},
		{Name: "requests of a rate", Kind: Requests, Rate: 400e3},
		{Name: "command", Kind: Exec, Command: "echo to $GUEST; sleep 60"},
	}
	for _, f := range flows {
		begin(t, c, f)
	}
	from := now()
	time.Sleep(1500 * time.Millisecond)
	to := now()
	for _, f := range flows {
		t.Run(f.Name, func(t *testing.T) {
			r := end(t, c, f.Name)
			if !r.Survived || r.Lost+r.Repeated+r.Corrupt != 0 {
				t.Errorf("survived %v, lost %d, repeated %d, corrupt %d", r.Survived, r.Lost, r.Repeated, r.Corrupt)
			}
			if f.Kind == Exec {
				if r.Output != "to 127.0.0.1\n" {
					t.Errorf("output %q", r.Output)
				}
				return
			}
			if r.MPTCP != f.MPTCP {
				t.Errorf("MPTCP %v, want %v", r.MPTCP, f.MPTCP)
			}
			if want := max(1, f.Connections); len(r.Connections) != want {
				t.Errorf("%d connections, want %d", len(r.Connections), want)
			}
			if rtt, ok := r.RTT(from, to); !ok || rtt <= 0 || rtt > time.Duration(to-from) {
				t.Errorf("round trip %v, %v", rtt, ok)
			}
			if mbps, ok := r.Mbps(from, to); !ok || f.Rate > 0 && (mbps < float64(f.Rate)/1e6*0.9 || mbps > float64(f.Rate)/1e6*1.1) {
				t.Errorf("%.2f Mbit/s, %v", mbps, ok)
			}
			gap, ok := r.Gap(from, to)
			if !ok || gap < 3*time.Millisecond || gap >= time.Duration(to-from) {
				t.Errorf("gap %v, %v", gap, ok)
			}
			if f.Kind == UDP {
				return // its sockets have no remote address
			}
			if len(r.Connections[0].Remotes) != 1 || r.Connections[0].Remotes[0] != r.Connections[0].First || r.Connections[0].Moved {
				t.Errorf("connection %+v: want one remote, its first", r.Connections[0].Remotes)
			}
			if c := r.Connections[0]; c.Peer.Addr() != c.First || c.Peer.Port() == 0 || c.Local.Addr() != c.First || c.Local.Port() == 0 {
				t.Errorf("a connection from %s to %s, by loopback", c.Local, c.Peer)
			}
		})
	}
}

func TestSamplesTellOfEachFlow(t *testing.T) {
	name, _ := guest(t)
	c := client(t, name)
	begin(t, c, Flow{Name: "up", Kind: Upload, MPTCP: true, Rate: 20e6, Connections: 2})
	var s Sample
	for range 5 {
		s = <-c.Samples()
	}
	if s.Flow != "up" || s.Bytes == 0 || s.Mbps < 5 || s.RTT == nil || s.KernelRTT == nil || s.Alive != 2 || s.MPTCP != 2 ||
		len(s.Subflows) != 2 || s.Remotes[loopback] != 2 || s.Subflows[1].Sent == 0 {
		t.Errorf("sample %+v", s)
	}
}

// busy is what a machine with other work may add to a gap.
const busy = 250 * time.Millisecond

func TestPauseOfTheGuestIsTheGap(t *testing.T) {
	need.Lab(t)
	name, server := guest(t)
	c := client(t, name)
	kinds := []string{Ticks, Download, Upload, Requests, UDP}
	for _, k := range kinds {
		begin(t, c, Flow{Name: k, Kind: k, MPTCP: true, Rate: 10e6})
	}
	time.Sleep(300 * time.Millisecond)
	before := now()
	least, most := pause(t, server, 300*time.Millisecond)
	time.Sleep(300 * time.Millisecond)
	after := now()
	for _, k := range kinds {
		r := end(t, c, k)
		gap, ok := r.Gap(before-100e6, after)
		if !ok || gap < least-20*time.Millisecond || gap > most+busy {
			t.Errorf("%s: gap %v, %v, want between %v and %v", k, gap, ok, least, most)
		}
		if quiet, ok := r.Gap(after-50e6, after); !ok || quiet >= gap {
			t.Errorf("%s: gap afterwards %v, %v", k, quiet, ok)
		}
		if !r.Survived || r.Lost+r.Repeated+r.Corrupt != 0 {
			t.Errorf("%s: survived %v, lost %d, repeated %d, corrupt %d", k, r.Survived, r.Lost, r.Repeated, r.Corrupt)
		}
	}
}

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
			time.Sleep(100 * time.Millisecond) // and what is behind it
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
		in := record.NewReader(c, 4096, now)
		line, err := in.Line(record.MaxHello)
		if err != nil {
			return
		}
		h, err := record.ParseHello(line)
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
	time.Sleep(time.Second)
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

func TestFlowsThatCannotStart(t *testing.T) {
	name, _ := guest(t)
	c := client(t, name)
	begin(t, c, Flow{Name: "there", Kind: Ticks})
	empty := client(t, namespace(t))
	tests := []struct {
		on   *Client
		flow Flow
		want string
	}{
		{c, Flow{Name: "there", Kind: Ticks, Target: loopback}, "start traffic there: runs already"},
		{c, Flow{Name: "x", Kind: "dance", Target: loopback}, `start traffic x: unknown kind "dance"`},
		{c, Flow{Name: "x", Kind: Ticks}, "start traffic x: no target address"},
		{c, Flow{Name: "x", Kind: Exec}, "start traffic x: no command"},
		{empty, Flow{Name: "x", Kind: Ticks, Target: loopback},
			"start traffic x: ticks to 127.0.0.1: dial tcp 127.0.0.1:7001: connect: connection refused"},
	}
	for _, test := range tests {
		if err := test.on.Start(test.flow); err == nil || err.Error() != test.want {
			t.Errorf("start %+v: %v, want %s", test.flow, err, test.want)
		}
	}
	if _, err := c.Stop("x"); err == nil {
		t.Error("stopped what never ran")
	}
}

func TestCommandsThatEnd(t *testing.T) {
	c := client(t, namespace(t))
	for command, survived := range map[string]bool{"true": true, "exit 3": false, "sleep 60": true} {
		begin(t, c, Flow{Name: "x", Kind: Exec, Command: command})
		if time.Sleep(100 * time.Millisecond); !survived {
			waitFor(t, c, "the end of "+command, func(s Sample) bool { return s.Flow == "x" && s.Alive == 0 })
		}
		if r := end(t, c, "x"); r.Survived != survived {
			t.Errorf("%q: survived %v", command, r.Survived)
		}
	}
}

// TestRareDatagramsSurvive: a flow of a datagram every few seconds begins at once, and is not
// taken for dead.
func TestRareDatagramsSurvive(t *testing.T) {
	name, server := guest(t)
	c := client(t, name)
	begin(t, c, Flow{Name: "rare", Kind: UDP, Connections: 2, Every: 3 * time.Second})
	time.Sleep(fresh + 500*time.Millisecond)
	r := end(t, c, "rare")
	if !r.Survived || len(r.Connections) != 2 || r.Lost != 0 || r.Records < 1 || r.Records > 3 {
		t.Errorf("survived %v, %d sockets, %d datagrams, %d lost", r.Survived, len(r.Connections), r.Records, r.Lost)
	}
	begin(t, c, Flow{Name: "dead", Kind: UDP})
	if err := server.Kill(); err != nil {
		t.Fatal(err)
	}
	if _, err := server.Wait(); err != nil {
		t.Fatal(err)
	}
	time.Sleep(fresh + 100*time.Millisecond)
	if r = end(t, c, "dead"); r.Survived || r.Connections[0].Survived {
		t.Error("nobody is there, and it survived")
	}
}

// TestDatagramOf: datagrams are as far apart as their rate wants it, also where it is low.
func TestDatagramOf(t *testing.T) {
	for _, c := range []struct {
		rate  int64
		every time.Duration
		size  int
		apart time.Duration
	}{
		{0, 10 * time.Millisecond, 200, 10 * time.Millisecond},
		{160e3, 10 * time.Millisecond, 200, 10 * time.Millisecond},
		{8e3, 10 * time.Millisecond, 64, 64 * time.Millisecond},
		{9600e3, 10 * time.Millisecond, 1200, time.Millisecond},
	} {
		if size, apart := datagramOf(c.rate, c.every); size != c.size || apart != c.apart {
			t.Errorf("%d bit/s: %d bytes every %v", c.rate, size, apart)
		}
	}
}

// TestSlowestFlows: a flow begins, and survives, at whatever rate.
func TestSlowestFlows(t *testing.T) {
	name, _ := guest(t)
	c := client(t, name)
	kinds := []string{Ticks, Download, Upload, Requests, UDP}
	for _, kind := range kinds {
		begin(t, c, Flow{Name: kind, Kind: kind, Rate: 8, Connections: 2})
	}
	time.Sleep(fresh + 100*time.Millisecond)
	for _, kind := range kinds {
		r := end(t, c, kind)
		if !r.Survived || r.Records < 1 || r.Records > 2 || r.Lost != 0 {
			t.Errorf("%s: survived %v, %d records, %d lost", kind, r.Survived, r.Records, r.Lost)
		}
	}
}

// TestRareRecordsSurvive: a connection that has nothing to say for long is asked at the end
// whether it still delivers.
func TestRareRecordsSurvive(t *testing.T) {
	name, _ := guest(t)
	c := client(t, name)
	begin(t, c, Flow{Name: "rare", Kind: Requests, MPTCP: true, Connections: 3, Every: time.Minute})
	time.Sleep(fresh + 100*time.Millisecond)
	r := end(t, c, "rare")
	if !r.Survived || r.Records != 3 || r.Connected <= 0 {
		t.Errorf("survived %v, %d records, connected in %v", r.Survived, r.Records, r.Connected)
	}
	for _, one := range r.Connections { // pings tell of it meanwhile
		if one.Heard < one.Last+int64(fresh)/2 || one.Ended != 0 {
			t.Errorf("last heard %v after its record, ended at %d", time.Duration(one.Heard-one.Last), one.Ended)
		}
	}
}

// TestSlowConnectionIsAwaited: one whose records take seconds is waited for as long as they take, one that was quick lately is not.
func TestSlowConnectionIsAwaited(t *testing.T) {
	s := &stream{}
	at := time.Now().UnixNano()
	take := func(after time.Duration) time.Duration {
		at += int64(after)
		s.heard(at)
		return s.slowness()
	}
	take(0)
	if got := take(20 * time.Millisecond); got > 50*time.Millisecond {
		t.Errorf("a quick one is waited for %v longer", got)
	}
	if got := take(5 * time.Second); got != 10*time.Second {
		t.Errorf("a slow one is waited for %v longer", got)
	}
	if got := take(time.Minute); got != finalWaitMost {
		t.Errorf("a very slow one is waited for %v longer", got)
	}
	for range 50 {
		take(20 * time.Millisecond)
	}
	if got := s.slowness(); got > 50*time.Millisecond {
		t.Errorf("one that was slow long ago is waited for %v longer", got)
	}
}
