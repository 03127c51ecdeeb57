package image

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"godwit/netstate/mptcp"
	"godwit/vm/guest"
)

func prefixes(list ...string) (all []netip.Prefix) {
	for _, one := range list {
		all = append(all, netip.MustParsePrefix(one))
	}
	return all
}

func addrs(list ...string) (all []netip.Addr) {
	for _, one := range list {
		all = append(all, netip.MustParseAddr(one))
	}
	return all
}

var (
	first = guest.Configure{MAC: macs[0], Addrs: prefixes(guestA+"/24", "fd01::10/64"), Table: 101, Main: true,
		GatewayV4: netip.MustParseAddr(gatewayA), GatewayV6: netip.MustParseAddr("fd01::1"), TxQueueLen: 10000}
	second = guest.Configure{MAC: macs[1], Addrs: prefixes(guestB+"/24", "fd02::10/64"), Table: 102, Endpoint: 11,
		GatewayV4: netip.MustParseAddr(gatewayB), GatewayV6: netip.MustParseAddr("fd02::1"), TxQueueLen: 10000}
)

// TestGuest boots one guest and does with it what a migration does, but for the
// migration itself.
func TestGuest(t *testing.T) {
	w := start(t)
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	t.Run("info", func(t *testing.T) { w.info(ctx, t) })
	t.Run("exec", func(t *testing.T) { w.exec(ctx, t) })
	t.Run("workloads", func(t *testing.T) { w.workloads(ctx, t) })
	t.Run("ticks", func(t *testing.T) { w.ticks(ctx, t) })
	t.Run("first NIC", func(t *testing.T) { w.firstNIC(ctx, t) })
	t.Run("handover", func(t *testing.T) { w.handover(ctx, t) })
	t.Run("reconnect", func(t *testing.T) { w.reconnect(ctx, t) })
	t.Run("poweroff", func(t *testing.T) { w.poweroff(ctx, t) })
}

func (w *world) info(ctx context.Context, t *testing.T) {
	info, err := w.client.Info(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if len(info.NICs) != 2 || !info.MPTCP || info.Subflows != 8 || info.AddrAccepted != 8 || info.BootID == "" {
		t.Errorf("info: %+v", info)
	}
	free, err := w.client.Exec(ctx, "free -m | sed -n 2p", 0)
	t.Logf("kernel %s, memory in MiB %s %v", info.Kernel, free.Stdout, err)
}

func (w *world) exec(ctx context.Context, t *testing.T) {
	got, err := w.client.Exec(ctx, "echo out; echo err >&2; exit 3", 0)
	if err != nil || got.Exit != 3 || got.Stdout != "out\n" || got.Stderr != "err\n" || got.TimedOut {
		t.Errorf("exec: %+v, %v", got, err)
	}
	if got, err = w.client.Exec(ctx, "sleep 20", 300*time.Millisecond); err != nil || !got.TimedOut || got.Exit != -1 {
		t.Errorf("exec that takes too long: %+v, %v", got, err)
	}
	if got, err = w.client.Exec(ctx, "yes | head -c 200000", 0); err != nil || len(got.Stdout) != guest.ExecLimit {
		t.Errorf("exec that says a lot: %d bytes, %v", len(got.Stdout), err)
	}
	// Orphans are buried.
	if got, err = w.client.Exec(ctx, "(sleep 0.1 &) ; sleep 0.5; ps -o stat | grep -c Z", 0); err != nil || got.Stdout != "0\n" {
		t.Errorf("dead processes: %+v, %v", got, err)
	}
}

func (w *world) workloads(ctx context.Context, t *testing.T) {
	lines := []string{"dirty size=16MiB hot=12% rate=2MiB/s", "dirty size=4MiB data=text", "disk write=2MiB"}
	for range 2 {
		if err := w.client.Run(ctx, lines...); err != nil {
			t.Fatal(err)
		}
	}
	time.Sleep(time.Second)
	v, err := w.client.Verify(ctx)
	if err != nil || v.Areas != 3 || v.Pages != 4096+1024+512 || v.Corrupt != 0 || v.Writes < 5632+256 || len(v.Errors) != 0 {
		t.Errorf("verify: %+v, %v", v, err)
	}
	var refused *guest.CallError
	if err := w.client.Run(ctx, "dirt"); !errors.As(err, &refused) || !strings.Contains(err.Error(), "allowed: dirty") {
		t.Errorf("a wrong line: %v", err)
	}
}

func (w *world) ticks(ctx context.Context, t *testing.T) {
	if err := w.client.Ticks(ctx, 10*time.Millisecond); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := w.client.Ticks(ctx, 0); err != nil {
			t.Error(err)
		}
	}()
	var last guest.Event
	for n := 0; n < 50; n++ {
		event := <-w.client.Events()
		if n > 0 && (event.N != last.N+1 || event.MonoNS <= last.MonoNS) {
			t.Fatalf("after %+v came %+v", last, event)
		}
		last = event
	}
}

func (w *world) firstNIC(ctx context.Context, t *testing.T) {
	for range 2 {
		made, err := w.client.Configure(ctx, first)
		if err != nil || made.Device == "" || len(made.EndpointIDs) != 0 {
			t.Fatalf("configure: %+v, %v", made, err)
		}
	}
	info, err := w.client.Info(ctx)
	if err != nil || !info.NICs[0].Up || fmt.Sprint(info.NICs[0].Addrs) != "[10.1.1.10/24 fd01::10/64]" || info.NICs[1].Up {
		t.Errorf("NICs: %+v, %v", info.NICs, err)
	}
	for _, host := range []string{guestA, "[fd01::10]"} {
		response, err := once.Get("http://" + host + "/bytes/100000")
		if err != nil {
			t.Fatal(err)
		}
		n, err := io.Copy(io.Discard, response.Body)
		if n != 100000 || err != nil {
			t.Errorf("http %s: %d bytes, %v", host, n, err)
		}
		response.Body.Close()
	}
	var dialer net.Dialer
	dialer.SetMultipathTCP(true)
	conn, err := dialer.DialContext(ctx, "tcp", guestA+":5201")
	if err != nil {
		t.Fatal(err)
	}
	if used, err := conn.(*net.TCPConn).MultipathTCP(); !used || err != nil {
		t.Errorf("iperf3 speaks MPTCP: %v, %v", used, err)
	}
	conn.Close()
	out, err := w.client.Exec(ctx, "ip rule; ip route show table 101; ip -6 route show table 101; ip route", 0)
	if err != nil || strings.Count(out.Stdout, "from 10.1.1.10 lookup 101") != 1 {
		t.Errorf("rules: %s %v", out.Stdout, err)
	}
	counters, err := w.client.Counters(ctx)
	if err != nil || counters.MeterError != "" || len(counters.Meter) == 0 {
		t.Errorf("counters: %+v, %v", counters, err)
	}
}

// handover changes the guest's address under open connections: MPTCP ones follow,
// a plain one stays, on an address kept for it.
func (w *world) handover(ctx context.Context, t *testing.T) {
	four, six := open(ctx, t, guestA, true), open(ctx, t, "fd01::10", true)
	plain := open(ctx, t, guestA, false)
	old, next := addrs(guestA, "fd01::10"), addrs(guestB, "fd02::10")

	made, err := w.client.Configure(ctx, second)
	if err != nil || !slices.Equal(made.EndpointIDs, []uint8{11, 12}) {
		t.Fatalf("configure: %+v, %v", made, err)
	}
	w.datagrams(ctx, t)
	joins, err := w.client.AwaitJoin(ctx, guest.AwaitJoin{Addrs: next, Old: old, LimitMS: 10000, SpareIDs: []uint8{13, 14, 15, 16}})
	if err != nil || joins.Total != 2 || joins.Joined != 2 || len(joins.Unable) != 0 {
		t.Fatalf("await join: %+v, %v", joins, err)
	}
	t.Logf("joined in %d ms, announced again with %v", joins.WaitedMS, joins.Endpoints)
	if err := w.client.MakeMain(ctx, macs[1]); err != nil {
		t.Fatal(err)
	}
	users, err := w.client.Users(ctx, old...)
	if err != nil || users.MPTCP != 2 || users.TCP != 1 {
		t.Errorf("users before: %+v, %v", users, err)
	}
	echoes := startEchoes(t, guestA)
	retire := guest.Retire{Addrs: old, MAC: macs[0], NewMAC: macs[1], Keep: true, Stay: true}
	for _, stay := range []bool{true, true, false, false} {
		retire.Stay = stay
		if err := w.client.Retire(ctx, retire); err != nil {
			t.Fatalf("retire, stay %v: %v", stay, err)
		}
		for _, s := range []*stream{four, six, plain} {
			s.ask(t)
		}
	}
	if sent, lost := echoes.stop(); lost != 0 || sent < 20 {
		t.Errorf("%d of %d datagrams to a kept address lost", lost, sent)
	}
	if users, err = w.client.Users(ctx, old...); err != nil || users.MPTCP != 0 || users.TCP != 1 {
		t.Errorf("users after: %+v, %v", users, err)
	}
	plain.conn.Close()
	if err := w.client.DropAddress(ctx, old...); err != nil {
		t.Fatal(err)
	}
	info, err := w.client.Info(ctx)
	if err != nil || info.NICs[0].Up || fmt.Sprint(info.NICs[1].Addrs) != "[10.2.1.10/24 fd02::10/64]" {
		t.Errorf("NICs at the end: %+v, %v", info.NICs, err)
	}
	out, err := w.client.Exec(ctx, "ip rule; ip -6 rule; ip route show table 101; ip route show table 1102; ip -6 route show table 1102", 0)
	if err != nil || strings.Contains(out.Stdout, guestA) || strings.Contains(out.Stdout, "10.1.1.1") {
		t.Errorf("left over in the guest:\n%s %v", out.Stdout, err)
	}
	w.unable(ctx, t)
	four.ask(t)
	six.ask(t)
	w.oneEach(t, next)
}

// datagrams checks that somebody who sends UDP to an old address is seen.
func (w *world) datagrams(ctx context.Context, t *testing.T) {
	t.Helper()
	before, err := w.client.Users(ctx, addrs(guestA)...)
	if err != nil {
		t.Fatal(err)
	}
	udp, err := net.Dial("udp", guestA+":7007")
	if err != nil {
		t.Fatal(err)
	}
	defer udp.Close()
	_ = udp.SetDeadline(time.Now().Add(5 * time.Second))
	for range 3 {
		if _, err := udp.Write([]byte("godwit")); err != nil {
			t.Fatal(err)
		}
		if _, err := udp.Read(make([]byte, 64)); err != nil {
			t.Fatalf("echo: %v", err)
		}
	}
	after, err := w.client.Users(ctx, addrs(guestA)...)
	if err != nil || after.UDPCount != before.UDPCount {
		t.Errorf("what a prober asks counts as use: %+v, %v; before: %+v", after, err, before)
	}
	counted, err := net.Dial("udp", guestA+":7005")
	if err != nil {
		t.Fatal(err)
	}
	defer counted.Close()
	for range 3 {
		if _, err := counted.Write([]byte("godwit")); err != nil {
			t.Fatal(err)
		}
	}
	for range 50 { // they have arrived soon
		time.Sleep(20 * time.Millisecond)
		after, err = w.client.Users(ctx, addrs(guestA)...)
		if err != nil || after.UDPCount >= before.UDPCount+3 {
			break
		}
	}
	if err != nil || after.UDPCount != before.UDPCount+3 {
		t.Errorf("users after three datagrams: %+v, %v; before: %+v", after, err, before)
	}
}

// unable moves back while one client takes no announced address: it stays, lives
// on at its address, and is named.
func (w *world) unable(ctx context.Context, t *testing.T) {
	if err := mptcp.SetLimits(8, 0); err != nil {
		t.Fatal(err)
	}
	stuck := open(ctx, t, guestB, true)
	if err := mptcp.SetLimits(8, 8); err != nil {
		t.Fatal(err)
	}
	able := open(ctx, t, guestB, true)
	back := first
	back.Endpoint = 21
	if _, err := w.client.Configure(ctx, back); err != nil {
		t.Fatal(err)
	}
	next, old := addrs(guestA, "fd01::10"), addrs(guestB, "fd02::10")
	joins, err := w.client.AwaitJoin(ctx, guest.AwaitJoin{Addrs: next, Old: old, LimitMS: 2500, SpareIDs: []uint8{23, 24}})
	if err != nil || joins.Joined < 2 || len(joins.Unable) != 1 || joins.Unable[0].Remote.String() != stuck.conn.LocalAddr().String() {
		t.Errorf("await join: %+v, %v", joins, err)
	}
	t.Logf("unable: %+v", joins.Unable)
	retire := guest.Retire{Addrs: old, MAC: macs[1], NewMAC: macs[0], EndpointIDs: []uint8{11, 12}, Keep: true, Stay: true}
	for _, stay := range []bool{true, false} {
		retire.Stay = stay
		if err := w.client.Retire(ctx, retire); err != nil {
			t.Fatal(err)
		}
		time.Sleep(50 * time.Millisecond)
		able.ask(t)
		stuck.ask(t)
	}
	users, err := w.client.Users(ctx, old...)
	if err != nil || users.MPTCP != 1 {
		t.Errorf("users: %+v, %v", users, err)
	}
	stuck.conn.Close()
	if err := w.client.DropAddress(ctx, old...); err != nil {
		t.Fatal(err)
	}
	able.ask(t)
}

// oneEach checks that moves leave no subflows behind at the client.
func (w *world) oneEach(t *testing.T, gone []netip.Addr) {
	t.Helper()
	time.Sleep(300 * time.Millisecond)
	connections, err := mptcp.Connections()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range connections {
		for _, s := range c.Subflows {
			for _, addr := range gone {
				if s.Remote.Addr() == addr && s.State == mptcp.StateEstablished {
					t.Errorf("a subflow to %s is left: %+v", addr, s)
				}
			}
		}
	}
}

// reconnect leaves a half line behind, as a killed agent does.
func (w *world) reconnect(ctx context.Context, t *testing.T) {
	if err := w.client.Ticks(ctx, time.Millisecond); err != nil {
		t.Fatal(err)
	}
	w.client.Close()
	time.Sleep(200 * time.Millisecond)
	raw, err := net.Dial("unix", w.socket())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(raw, `{"id":"x","method":"inf`); err != nil {
		t.Fatal(err)
	}
	time.Sleep(50 * time.Millisecond)
	raw.Close()
	begin := time.Now()
	w.client = w.dial(w.t)
	if _, err := w.client.Info(ctx); err != nil {
		t.Fatal(err)
	}
	t.Logf("dialled again in %v", time.Since(begin))
	if err := w.client.Ticks(ctx, 0); err != nil {
		t.Fatal(err)
	}
}

func (w *world) poweroff(ctx context.Context, t *testing.T) {
	v, err := w.client.Verify(ctx)
	if err != nil || v.Corrupt != 0 {
		t.Errorf("verify: %+v, %v", v, err)
	}
	if err := w.client.Call(ctx, "poweroff", nil, nil); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-w.exited:
		w.exited <- err
		if err != nil {
			t.Errorf("qemu: %v", err)
		}
	case <-time.After(20 * time.Second):
		t.Error("the guest does not power off")
	}
}
