package traffic

import (
	"context"
	"net/netip"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"godwit/internal/need"
	"godwit/netstate/netns"
)

// wire connects two namespaces by a veth pair with these addresses.
func wire(t *testing.T, a, b string, ofA, ofB []string) {
	t.Helper()
	run(t, a, "ip", "link", "add", "w0", "type", "veth", "peer", "name", "w1")
	run(t, a, "ip", "link", "set", "w1", "netns", b)
	for _, x := range []struct {
		name, device string
		addresses    []string
	}{{a, "w0", ofA}, {b, "w1", ofB}} {
		for _, address := range x.addresses {
			run(t, x.name, "ip", "address", "add", address+"/24", "dev", x.device)
		}
		run(t, x.name, "ip", "link", "set", x.device, "up")
		run(t, x.name, "ip", "mptcp", "limits", "set", "subflow", "8", "add_addr_accepted", "8")
	}
}

// waitFor waits for such a sample. Samples queue up: those of a flow that was stopped are still told, so flows that are
// waited for have names of their own.
func waitFor(t *testing.T, c *Client, what string, ok func(Sample) bool) Sample {
	t.Helper()
	var last Sample
	for patience := need.Patient(5 * time.Second); !patience.Over(); {
		select {
		case s := <-c.Samples():
			if last = s; ok(s) {
				return s
			}
		case <-time.After(10 * time.Millisecond):
		}
	}
	t.Fatalf("%s: not seen in 5s; last: %+v", what, last)
	return Sample{}
}

// The guest announces another address and gives up the first one, as in a
// handover: the same connections deliver on, and are seen to have moved.
func TestConnectionsThatMoveAreSeenMoving(t *testing.T) {
	need.Program(t, "ip")
	g, _ := guest(t)
	name := namespace(t)
	wire(t, g, name, []string{"10.9.1.1", "10.9.2.1"}, []string{"10.9.1.2", "10.9.2.2"})
	old, next := netip.MustParseAddr("10.9.1.1"), netip.MustParseAddr("10.9.2.1")
	c := client(t, name)
	kinds := []string{Ticks, Download, Upload, Requests}
	for _, k := range kinds {
		begin(t, c, Flow{Name: k, Kind: k, MPTCP: true, Rate: 20e6, Target: old})
	}
	begin(t, c, Flow{Name: "plain", Kind: Ticks, Target: old})
	from := now()
	run(t, g, "ip", "mptcp", "endpoint", "add", next.String(), "id", "5", "signal", "dev", "w0")
	for _, k := range kinds {
		waitFor(t, c, k+" on both addresses", func(s Sample) bool { return s.Flow == k && s.Remotes[old] == 1 && s.Remotes[next] == 1 })
	}
	run(t, g, "ip", "mptcp", "endpoint", "delete", "id", "0", old.String())
	for _, k := range kinds {
		waitFor(t, c, k+" on the next address", func(s Sample) bool { return s.Flow == k && s.Remotes[old] == 0 && s.Remotes[next] == 1 })
	}
	time.Sleep(200 * time.Millisecond)
	for _, k := range append(kinds, "plain") {
		r := end(t, c, k)
		moved := k != "plain"
		if !r.Survived || r.MPTCP != moved || r.Connections[0].Moved != moved || r.Lost+r.Repeated+r.Corrupt != 0 {
			t.Errorf("%s: survived %v, MPTCP %v, moved %v to %v, lost %d, repeated %d, corrupt %d", k, r.Survived, r.MPTCP,
				r.Connections[0].Moved, r.Connections[0].Remotes, r.Lost, r.Repeated, r.Corrupt)
		}
		gap, _ := r.Gap(from, r.End)
		t.Logf("%s: longest gap %v", k, gap)
	}
}

func TestIperf3(t *testing.T) {
	need.Lab(t) // a rate is judged
	need.Program(t, "iperf3")
	g, _ := guest(t)
	server := exec.Command("iperf3", "-s")
	if err := netns.Start(g, server); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = server.Process.Kill(); _ = server.Wait() }()
	listens(t, g, 5201)
	c := client(t, g)
	for try := range tries {
		begin(t, c, Flow{Name: "x", Kind: Iperf3, Rate: 40e6})
		time.Sleep(500 * time.Millisecond)
		from := now()
		time.Sleep(time.Second)
		to := now()
		r := end(t, c, "x")
		mbps, ok := r.Mbps(from, to)
		if r.Survived && ok && mbps >= 30 && mbps <= 50 {
			return
		}
		t.Logf("try %d: survived %v, %.1f Mbit/s, %v\n%s", try, r.Survived, mbps, ok, r.Output)
		if !r.Survived {
			break
		}
	}
	t.Error("it did not survive, or had its rate in no try")
}

// TestInterruptOfATerminal: it goes to the processes of the lab's own group, of which these are none.
func TestInterruptOfATerminal(t *testing.T) {
	name, _ := guest(t)
	p, err := StartProber(context.Background(), name, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	for what, child := range map[string]*process{"client": client(t, name).p, "prober": p.p} {
		if group, err := syscall.Getpgid(child.cmd.Process.Pid); err != nil || group == syscall.Getpgrp() {
			t.Errorf("%s: group %d, %v, is the lab's", what, group, err)
		}
	}
}

// Whatever ends the client's process also ends what it started.
func TestNothingOutlivesTheClient(t *testing.T) {
	for _, how := range []string{"close", "cancel", "kill"} {
		name := namespace(t)
		ctx, cancel := context.WithCancel(context.Background())
		c, err := StartClient(ctx, name)
		if err != nil {
			t.Fatal(err)
		}
		begin(t, c, Flow{Name: "x", Kind: Exec, Command: "exec sleep 60"})
		switch how {
		case "close":
			if err := leave(c); err != nil {
				t.Error(err)
			}
		case "cancel":
			cancel()
		case "kill":
			_ = c.p.cmd.Process.Kill()
		}
		select {
		case <-c.p.done:
		case <-time.After(5 * time.Second):
			t.Fatalf("%s: the client's process lives", how)
		}
		for until := time.Now().Add(5 * time.Second); len(netns.Processes(name)) > 0 && time.Now().Before(until); {
			time.Sleep(10 * time.Millisecond)
		}
		if left := netns.Processes(name); len(left) > 0 {
			t.Errorf("%s: processes %v are left", how, left)
		}
		for range c.Samples() { // closed
		}
		if _, err := c.Stop("x"); err == nil || !strings.HasPrefix(err.Error(), "client process ended") {
			t.Errorf("%s: stop: %v", how, err)
		}
		cancel()
	}
}

// TestCommandsLeaveNobody: what a command began in the background ends with the flow, also where the command itself has
// ended long ago: it would go on as traffic.
func TestCommandsLeaveNobody(t *testing.T) {
	name := namespace(t)
	c := client(t, name)
	for command, lives := range map[string]int{"sleep 60 & exit 3": 1, "sleep 60 & sleep 60": 3, "sleep 60 & exec sleep 60": 2} {
		begin(t, c, Flow{Name: command, Kind: Exec, Command: command})
		others := func(n int) []int {
			var left []int
			for until := time.Now().Add(5 * time.Second); time.Now().Before(until); time.Sleep(10 * time.Millisecond) {
				left = slices.DeleteFunc(netns.Processes(name), func(pid int) bool { return pid == c.p.cmd.Process.Pid })
				if len(left) == n {
					break
				}
			}
			return left
		}
		if begun := others(lives); len(begun) != lives {
			t.Errorf("%s: %d processes, want %d", command, len(begun), lives)
		}
		ended := strings.Contains(command, "exit")
		if ended {
			waitFor(t, c, "the end of "+command, func(s Sample) bool { return s.Flow == command && s.Alive == 0 })
		}
		if r := end(t, c, command); r.Survived == ended {
			t.Errorf("%s: survived: %v", command, r.Survived)
		}
		if left := others(0); len(left) > 0 {
			t.Errorf("%s: processes %v are left", command, left)
		}
	}
}
