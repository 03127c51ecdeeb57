package follow

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"godwit/internal/need"
	"godwit/netstate/mptcp"
)

// TestTidyLeavesOneOfSeveral: who came by announcements with ports alone, and was told of several as somebody else did not
// come, keeps one of these; who came by the connection's own port needs none, unless its client has moved since.
func TestTidyLeavesOneOfSeveral(t *testing.T) {
	endpoint := func(id uint8) mptcp.Endpoint {
		return mptcp.Endpoint{ID: id, Addr: to, Port: nudgePort + uint16(id), Flags: mptcp.FlagSignal}
	}
	on := func(ports ...uint16) (c mptcp.Connection) {
		c.Subflows = []mptcp.Subflow{{Local: netip.AddrPortFrom(from, 80), State: mptcp.StateEstablished}}
		for _, port := range ports {
			c.Subflows = append(c.Subflows, mptcp.Subflow{Local: netip.AddrPortFrom(to, port), State: mptcp.StateEstablished})
		}
		return c
	}
	moved := func(c mptcp.Connection, ports ...uint16) mptcp.Connection { // what it had before stands, and leads nowhere
		for _, port := range ports {
			c.Subflows = append(c.Subflows, mptcp.Subflow{Local: netip.AddrPortFrom(to, port), Remote: netip.AddrPortFrom(client, 1000), State: mptcp.StateEstablished})
		}
		return c
	}
	for name, c := range map[string]struct {
		connections []mptcp.Connection
		want        []uint8
	}{
		"nobody came":                   {[]mptcp.Connection{on()}, []uint8{3, 5, 7}},
		"by its own port, and told":     {[]mptcp.Connection{on(80, nudgePort+3, nudgePort+5)}, []uint8{3, 5, 7}},
		"by one of them":                {[]mptcp.Connection{on(nudgePort + 3)}, []uint8{5, 7}},
		"by all of them":                {[]mptcp.Connection{on(nudgePort+3, nudgePort+5, nudgePort+7)}, []uint8{3, 5}},
		"by all, and another by one":    {[]mptcp.Connection{on(nudgePort+3, nudgePort+5, nudgePort+7), on(nudgePort + 5)}, []uint8{3, 7}},
		"one by two, another by others": {[]mptcp.Connection{on(nudgePort+3, nudgePort+5), on(nudgePort+5, nudgePort+7)}, []uint8{3, 7}},
		"by its own port, then moved":   {[]mptcp.Connection{moved(on(80), nudgePort+5)}, []uint8{3, 7}},
		"moved, and by both":            {[]mptcp.Connection{moved(on(80, nudgePort+3), 80, nudgePort+3)}, []uint8{3, 5, 7}},
	} {
		var got []uint8
		for _, e := range unneeded([]mptcp.Endpoint{endpoint(3), endpoint(5), endpoint(7)}, c.connections) {
			got = append(got, e.ID)
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: %v go, want %v", name, got, c.want)
		}
	}
}

// TestUnableOneCostsNobodyElse: a client that accepts no announced address makes us
// announce again and again. Who has come must not keep the subflows that this gave
// it: it counts the addresses that it has accepted, and takes back one that is withdrawn only as long as it has a subflow
// there. What is withdrawn by the old address comes too late, as that leads through a tunnel (here: it is lost).
func TestUnableOneCostsNobodyElse(t *testing.T) {
	need.Program(t, "ss")
	setUp(t)
	near, _ := connect(t, true)
	if err := mptcp.SetLimits(8, 0); err != nil {
		t.Fatal(err)
	}
	deaf, _ := connect(t, true)
	if err := mptcp.SetLimits(8, 8); err != nil {
		t.Fatal(err)
	}
	announceTo(t)
	lost := make(chan struct{})
	late := time.AfterFunc(4*time.Second, func() { // when it has been announced again
		defer close(lost)
		nft(t, "table inet late { chain in { type filter hook input priority 0; ip saddr "+from.String()+" drop; }; }")
	})
	early := sync.OnceValue(func() bool { // what was begun is awaited, and taken back
		if late.Stop() {
			return true
		}
		<-lost
		nft(t, "delete table inet late")
		return false
	})
	t.Cleanup(func() { early() })
	joins := await(t, 5*time.Second, 5, 6, 7)
	if early() {
		t.Fatal("the wait ended early")
	}
	if joins.Joined != 1 || len(joins.Unable) != 1 || joins.Unable[0].Remote.String() != deaf.LocalAddr().String() || len(joins.Endpoints) == 0 {
		t.Fatalf("got %+v, want one joined, the deaf one unable, and announcements again", joins)
	}
	connections, err := mptcp.Connections()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range connections { // as it is retired while the deaf one needs it
		for _, s := range c.Subflows {
			if s.Local.Addr() == from && s.Remote.String() == near.LocalAddr().String() {
				if err := mptcp.Abort(s); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	awaitAccepted(t, near, func(n string) bool { return n != "" && n != "1" })
	Tidy()
	endpoints, err := mptcp.Endpoints()
	if err != nil || len(endpoints) != 1 || endpoints[0].Port != 0 {
		t.Errorf("endpoints afterwards: %+v, %v; want the first alone", endpoints, err)
	}
	awaitAccepted(t, near, func(n string) bool { return n == "1" })
}

// TestTidyAfterCutShort: what was announced again is withdrawn also where the wait was cut short, as by an agent that
// ended, or the program was started again since: nobody was told of it. Somebody else's endpoint with a port stays.
func TestTidyAfterCutShort(t *testing.T) {
	setUp(t)
	connect(t, true)
	if err := mptcp.SetLimits(8, 0); err != nil {
		t.Fatal(err)
	}
	connect(t, true) // the deaf one
	announceTo(t)
	theirs := mptcp.Endpoint{ID: 9, Addr: to, Port: 4009, Flags: mptcp.FlagSignal}
	if err := mptcp.AddEndpoint(theirs); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		_, err := Await(ctx, awaitOf(to, from, 5, 6, 7), new(Stayed), new(Moves), func(int, int) {})
		ended <- err
	}()
	for limit := need.Patient(20 * time.Second); len(endpointsOf(t)) < 3; time.Sleep(20 * time.Millisecond) {
		if limit.Over() {
			t.Fatal("nothing is announced again")
		}
	}
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	Tidy()
	if ids := endpointsOf(t); !slices.Equal(ids, []uint8{3, 9}) {
		t.Errorf("endpoints %v afterwards, want the first and somebody else's", ids)
	}
}

func endpointsOf(t *testing.T) (ids []uint8) {
	t.Helper()
	endpoints, err := mptcp.Endpoints()
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range endpoints {
		ids = append(ids, e.ID)
	}
	slices.Sort(ids)
	return ids
}

var accepted = regexp.MustCompile(`add_addr_accepted:(\d+)`)

// awaitAccepted waits until the client's end of a connection counts so many addresses that it has accepted, "" for none.
func awaitAccepted(t *testing.T, client net.Conn, ok func(string) bool) {
	t.Helper()
	_, port, err := net.SplitHostPort(client.LocalAddr().String())
	if err != nil {
		t.Fatal(err)
	}
	for limit := need.Patient(20 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		out, err := exec.Command("ss", "-HMni", "sport = :"+port).CombinedOutput()
		if err != nil {
			t.Fatalf("ss: %v: %s", err, out)
		}
		n := strings.Join(accepted.FindStringSubmatch(string(out)), " ")
		if _, count, found := strings.Cut(n, " "); ok(count) || !found && ok("") {
			return
		}
		if limit.Over() {
			t.Fatalf("it counts %q: %s", n, out)
		}
	}
}
