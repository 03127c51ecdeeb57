package line

import (
	"context"
	"errors"
	"io"
	"net"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"godwit/agent/agenttest"
	"godwit/agent/config"
	"godwit/agent/limits"
	"godwit/vm/guest"
)

// web is a guest of our images.
var web = config.Description{Name: "web"}

func at(path string) func() string { return func() string { return path } }

// TestReach: a guest whose channel nobody has reached is reached when it is asked, by one
// client, however many ask; one whose channel was closed is reached again.
func TestReach(t *testing.T) {
	path, hangUp, clients := agenttest.ChannelSocket(t)
	g := &Line{}
	t.Cleanup(func() { g.Channel().Close() })
	if g.Channel() != nil {
		t.Fatal("it has a channel that nobody has reached")
	}
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			if c, err := g.Reach(t.Context(), web, at(path), limits.AskGuest); err != nil || c != g.Channel() {
				t.Errorf("reached %v: %v", c, err)
			}
		})
	}
	all.Wait()
	if n := clients(); n != 1 {
		t.Fatalf("%d clients", n)
	}
	first := g.Channel()
	hangUp()
	select {
	case <-first.Done():
	case <-time.After(10 * time.Second):
		t.Fatal("the client does not see that its connection is gone")
	}
	if c, err := g.Reach(t.Context(), web, at(path), limits.AskGuest); err != nil || c == first || Closed(c) {
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
	g := &Line{}
	c, err := g.Reach(t.Context(), web, at(path), limits.Limit{For: time.Minute})
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
	g := &Line{}
	if c, err := g.Reach(t.Context(), web, at(""), limits.AskGuest); !errors.Is(err, ErrNone) || c != nil {
		t.Fatalf("reached %v", c)
	}
	path := filepath.Join(t.TempDir(), "channel")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	g = &Line{}
	if c, err := g.Reach(t.Context(), web, at(path), limits.Limit{For: 50 * time.Millisecond}); err == nil || c != nil || g.Channel() != nil {
		t.Fatalf("reached %v", c)
	}
}

// TestReachWhileItArrives: who asks a guest whose channel somebody else has open, and hands over later, as its
// migration does, gets that one at once: QEMU serves nobody else. A dial in vain holds nobody up.
func TestReachWhileItArrives(t *testing.T) {
	path, _, clients := agenttest.ChannelSocket(t)
	g := &Line{}
	arrives, err := guest.Open(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { arrives.Close() })
	var all sync.WaitGroup
	for range 3 {
		all.Go(func() {
			if c, err := g.Reach(t.Context(), web, at(path), limits.Limit{Name: "test", For: time.Hour}); err != nil || c != guest.Channel(arrives) {
				t.Errorf("reached %v: %v", c, err)
			}
		})
	}
	for tries := 0; tries < 10000 && g.dialling.TryLock(); tries++ { // until one of them dials
		g.dialling.Unlock()
		time.Sleep(time.Millisecond)
	}
	g.SpeakBy(arrives)
	all.Wait()
	if n := clients(); n > 1 { // the first may not be seen yet
		t.Errorf("%d clients", n)
	}
}

// TestPort: whoever answers in a guest, by its description, has a port of its own.
func TestPort(t *testing.T) {
	for agent, port := range map[string]string{"": "org.godwit.guest.0", "godwit": "org.godwit.guest.0", "qga": "org.qemu.guest_agent.0"} {
		if got := Port(config.Description{Agent: agent}); got != port {
			t.Errorf("agent %q: port %s; want %s", agent, got, port)
		}
	}
}
