package traffic

import (
	"fmt"
	"net/netip"
	"sync/atomic"
	"testing"
	"time"

	"godwit/internal/need"
	"godwit/lab/traffic/record"
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
	wrong := map[string]string{}
	for try := 0; try == 0 || try < tries && len(wrong) > 0; try++ { // rates are those of a machine that was there meanwhile
		for _, f := range flows {
			begin(t, c, f)
		}
		from := now()
		time.Sleep(1500 * time.Millisecond)
		to := now()
		for _, f := range flows {
			r := end(t, c, f.Name)
			t.Run(f.Name, func(t *testing.T) { delivers(t, f, &r, from, to) })
			if f.Kind == Exec {
				continue
			}
			if mbps, ok := r.Mbps(from, to); !ok || f.Rate > 0 && (mbps < float64(f.Rate)/1e6*0.9 || mbps > float64(f.Rate)/1e6*1.1) {
				t.Logf("try %d: %s: %.2f Mbit/s, %v", try, f.Name, mbps, ok)
				if try == 0 {
					wrong[f.Name] = fmt.Sprintf("%.2f Mbit/s, %v", mbps, ok)
				}
			} else {
				delete(wrong, f.Name)
			}
		}
	}
	for name, was := range wrong {
		t.Errorf("%s: in none of %d tries its rate, at first %s", name, tries, was)
	}
}

// tries is how often rates are measured until they are right: a machine that is busy with other tests shows less.
const tries = 5

// delivers judges a flow that ran from from to to by all but its rate.
func delivers(t *testing.T, f Flow, r *Result, from, to int64) {
	t.Helper()
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
}

func TestSamplesTellOfEachFlow(t *testing.T) {
	name, _ := guest(t)
	c := client(t, name)
	begin(t, c, Flow{Name: "up", Kind: Upload, MPTCP: true, Rate: 20e6, Connections: 2})
	// A busy machine has 100 ms in which nothing arrives.
	s := waitFor(t, c, "what arrives", func(s Sample) bool { return s.Mbps >= 5 && s.RTT != nil && s.KernelRTT != nil })
	if s.Flow != "up" || s.Bytes == 0 || s.Alive != 2 || s.MPTCP != 2 || len(s.Subflows) != 2 || s.Remotes[loopback] != 2 || s.Subflows[1].Sent == 0 {
		t.Errorf("sample %+v", s)
	}
}

// busy is what a machine with other work may add to a gap.
const busy = 250 * time.Millisecond

// stoodStill watches the machine until the test ends: what is returned says for how long it has stood still since, as
// where a neighbour has the processor. That is in a gap too.
func stoodStill(t *testing.T) func() time.Duration {
	var stood atomic.Int64
	go func() {
		for last := time.Now(); t.Context().Err() == nil; {
			time.Sleep(5 * time.Millisecond)
			now := time.Now()
			if took := now.Sub(last); took > 50*time.Millisecond {
				stood.Add(int64(took))
			}
			last = now
		}
	}()
	return func() time.Duration { return time.Duration(stood.Load()) }
}

func TestPauseOfTheGuestIsTheGap(t *testing.T) {
	need.Lab(t)
	name, server := guest(t)
	c := client(t, name)
	kinds := []string{Ticks, Download, Upload, Requests, UDP}
	for _, k := range kinds {
		begin(t, c, Flow{Name: k, Kind: k, MPTCP: true, Rate: 10e6})
	}
	stood := stoodStill(t)
	time.Sleep(300 * time.Millisecond)
	before := now()
	least, most := pause(t, server, 300*time.Millisecond)
	time.Sleep(300 * time.Millisecond)
	after := now()
	for _, k := range kinds {
		r := end(t, c, k)
		gap, ok := r.Gap(before-100e6, after)
		if !ok || gap < least-20*time.Millisecond || gap > most+busy+stood() {
			t.Errorf("%s: gap %v, %v, want between %v and %v; the machine stood still for %v", k, gap, ok, least, most, stood())
		}
		if quiet, ok := r.Gap(after-50e6, after); !ok || quiet >= gap+stood() {
			t.Errorf("%s: gap afterwards %v, %v", k, quiet, ok)
		}
		if !r.Survived || r.Lost+r.Repeated+r.Corrupt != 0 {
			t.Errorf("%s: survived %v, lost %d, repeated %d, corrupt %d", k, r.Survived, r.Lost, r.Repeated, r.Corrupt)
		}
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
	const refused = `echo page; printf 'no \033[1mroute\n\n' >&2; exit 3`
	for command, ended := range map[string]string{"true": "", "exit 3": "exit status 3", refused: "exit status 3: no  [1mroute", "sleep 60": ""} {
		begin(t, c, Flow{Name: command, Kind: Exec, Command: command})
		if time.Sleep(100 * time.Millisecond); ended != "" {
			waitFor(t, c, "the end of "+command, func(s Sample) bool { return s.Flow == command && s.Alive == 0 })
		}
		if r := end(t, c, command); r.Survived != (ended == "") || r.Connections[0].Error != ended {
			t.Errorf("%q: survived %v, ended by %q, want %q", command, r.Survived, r.Connections[0].Error, ended)
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

// went is what a flow's first subflow has sent and received, bytes.
func went(s Sample) uint64 {
	if len(s.Subflows) == 0 {
		return 0
	}
	return s.Subflows[0].Sent + s.Subflows[0].Received
}

// TestSilentBetweenRecords: nothing goes over a silent connection while another is pinged, and at the end it is asked
// all the same.
func TestSilentBetweenRecords(t *testing.T) {
	name, _ := guest(t)
	c := client(t, name)
	silent := []string{Requests, Ticks}
	for _, kind := range silent {
		begin(t, c, Flow{Name: kind, Kind: kind, MPTCP: true, Every: time.Hour, Silent: true})
	}
	recorded := map[string]bool{}
	waitFor(t, c, "their records", func(s Sample) bool { recorded[s.Flow] = s.Records > 0; return recorded[Requests] && recorded[Ticks] })
	begin(t, c, Flow{Name: "pinged", Kind: Requests, MPTCP: true, Every: time.Hour})
	pinged := func(n uint64) {
		t.Helper()
		waitFor(t, c, "pings", func(s Sample) bool { return s.Flow == "pinged" && went(s) > n*record.HeaderSize })
	}
	look := func(name string) map[string]uint64 { // as a flow begins there is a sample of the others
		t.Helper()
		begin(t, c, Flow{Name: name, Kind: Requests, Every: time.Hour})
		seen := map[string]uint64{}
		waitFor(t, c, "samples", func(s Sample) bool { seen[s.Flow] = went(s); return seen[name]*seen[Requests]*seen[Ticks] > 0 })
		return seen
	}
	pinged(10)
	before := look("early")
	pinged(30)
	after := look("later")
	for _, kind := range silent {
		if bytes := after[kind] - before[kind]; bytes != 0 {
			t.Errorf("%s: %d bytes went since its record", kind, bytes)
		}
	}
	for _, kind := range silent {
		stopped := now()
		r := end(t, c, kind)
		waitFor(t, c, "its last sample", func(s Sample) bool { return s.Flow == kind && s.Time >= stopped })
		if !r.Survived || r.Records != 1 {
			t.Errorf("%s: survived %v, %d records", kind, r.Survived, r.Records)
		}
	}
}

// TestSlowConnectionIsAwaited: one whose records take seconds is waited for as long as they take, one that was quick
// lately is not.
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
