package agent

import (
	"context"
	"io"
	"net"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"godwit/agent/care"
	"godwit/agent/config"
	"godwit/agent/limits"
	"godwit/vm"
	"godwit/vm/guest"
)

// spoken is a QEMU of which only its channel's socket is asked.
type spoken struct {
	vm.Machine
	socket string
}

func (s spoken) GuestChannel() string { return s.socket }

// channelSocket is a guest that answers one client after the other at a socket, as QEMU has
// it; hang up ends the client of the moment.
func channelSocket(t *testing.T) (path string, hangUp func(), clients func() int) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "channel")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	var served []net.Conn
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			mu.Lock()
			served = append(served, conn)
			mu.Unlock()
			guest.NewServer(nil).Serve(context.Background(), conn, conn) //nolint:errcheck // ends with its client
			conn.Close()
		}
	}()
	hangUp = func() {
		mu.Lock()
		defer mu.Unlock()
		if n := len(served); n > 0 { // else its client has gone before it was seen
			served[n-1].Close()
		}
	}
	t.Cleanup(func() { l.Close(); hangUp(); <-ended })
	return path, hangUp, func() int { mu.Lock(); defer mu.Unlock(); return len(served) }
}

// TestReach: a guest whose channel nobody has reached is reached when it is asked, by one
// client, however many ask; one whose channel was closed is reached again.
func TestReach(t *testing.T) {
	path, hangUp, clients := channelSocket(t)
	g := &Guest{Machine: spoken{socket: path}, Held: care.Held{Description: config.Description{Name: "web"}}}
	t.Cleanup(func() { g.channel().Close() })
	if !g.hasChannel() || g.channel() != nil {
		t.Fatal("it has a channel that nobody has reached")
	}
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			if c, err := g.reach(t.Context(), limits.AskGuest); err != nil || c != g.channel() {
				t.Errorf("reached %v: %v", c, err)
			}
		})
	}
	all.Wait()
	if n := clients(); n != 1 {
		t.Fatalf("%d clients", n)
	}
	first := g.channel()
	hangUp()
	select {
	case <-first.Done():
	case <-time.After(10 * time.Second):
		t.Fatal("the client does not see that its connection is gone")
	}
	if c, err := g.reach(t.Context(), limits.AskGuest); err != nil || c == first || closed(c) {
		t.Fatalf("reached again: %v", err)
	}
}

// TestReachThrottled: a port out of which nothing comes before its client has gone is
// reached by the next one, and what the first had to say is not waited for.
func TestReachThrottled(t *testing.T) {
	path := filepath.Join(t.TempDir(), "channel")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() {
		first, err := l.Accept()
		if err != nil {
			served <- err
			return
		}
		io.Copy(io.Discard, first) //nolint:errcheck // until it hangs up
		second, err := l.Accept()
		if err == nil {
			guest.NewServer(nil).Serve(context.Background(), second, second) //nolint:errcheck // ends with its client
		}
		served <- err
	}()
	g := &Guest{Machine: spoken{socket: path}, Held: care.Held{Description: config.Description{Name: "web"}}}
	c, err := g.reach(t.Context(), limits.Limit{For: time.Minute})
	if err == nil {
		c.Close()
	}
	l.Close()
	if late := <-served; err != nil || late != nil {
		t.Fatalf("reached: %v, served: %v", err, late)
	}
}

// TestReachNobody: a guest without a channel is not waited for, one that does not answer for
// as long as it may take.
func TestReachNobody(t *testing.T) {
	g := &Guest{Machine: spoken{}}
	if c, err := g.reach(t.Context(), limits.AskGuest); err == nil || c != nil || g.hasChannel() {
		t.Fatalf("reached %v", c)
	}
	path := filepath.Join(t.TempDir(), "channel")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	g = &Guest{Machine: spoken{socket: path}}
	if c, err := g.reach(t.Context(), limits.Limit{For: 50 * time.Millisecond}); err == nil || c != nil || g.channel() != nil {
		t.Fatalf("reached %v", c)
	}
}

func TestAgentOfADescription(t *testing.T) {
	d := config.Description{Name: "web", Memory: 1 << 30, NICs: []config.NIC{{MAC: "52:54:00:00:00:0a"}}, Agent: "ssh"}
	refusal(t, d.Check(), `agent "ssh" is unknown; allowed: godwit, qga`)
	for agent, port := range map[string]string{"": "org.godwit.guest.0", "godwit": "org.godwit.guest.0", "qga": "org.qemu.guest_agent.0"} {
		d.Agent = agent
		if err := d.Check(); err != nil || portOf(d) != port {
			t.Errorf("agent %q: %v, port %s; want %s", agent, err, portOf(d), port)
		}
	}
}

// TestReachWhileItArrives: who asks a guest whose channel somebody else has open, and hands over later, as its
// migration does, gets that one at once: QEMU serves nobody else. A dial in vain holds nobody up.
func TestReachWhileItArrives(t *testing.T) {
	path, _, clients := channelSocket(t)
	g := &Guest{Machine: spoken{socket: path}, Held: care.Held{Description: config.Description{Name: "web"}}}
	arrives, err := guest.Open(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { arrives.Close() })
	var all sync.WaitGroup
	for range 3 {
		all.Go(func() {
			if c, err := g.reach(t.Context(), limits.Limit{Name: "test", For: time.Hour}); err != nil || c != guest.Channel(arrives) {
				t.Errorf("reached %v: %v", c, err)
			}
		})
	}
	for tries := 0; tries < 10000 && g.dialling.TryLock(); tries++ { // until one of them dials
		g.dialling.Unlock()
		time.Sleep(time.Millisecond)
	}
	g.speakBy(arrives)
	all.Wait()
	if n := clients(); n > 1 { // the first may not be seen yet
		t.Errorf("%d clients", n)
	}
}
