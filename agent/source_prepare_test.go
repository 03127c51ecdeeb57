package agent

import (
	"context"
	"errors"
	"net"
	"path/filepath"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"godwit/agent/agenttest"
	"godwit/agent/care"
	"godwit/agent/config"
	"godwit/agent/detour"
	"godwit/agent/guests"
	"godwit/agent/record"
	"godwit/migration"
	"godwit/netstate/tunnel"
	"godwit/vm/guest"
)

// spare is a guest that is asked to make its spare NIC ready, which was reached already.
type spare struct {
	guest.Channel
	asked chan guest.Configure
	err   error
}

func (s spare) Ready(_ context.Context, c guest.Configure) error {
	s.asked <- c
	return s.err
}

func (spare) Done() <-chan struct{} { return nil }

// twoNICGuest is one that runs here, and is asked by c.
func twoNICGuest(c guest.Channel) *guests.Guest {
	g := guests.New(care.Held{Description: config.Description{Name: "web", NICs: []config.NIC{{MAC: "52:54:00:00:00:01"}, {MAC: "52:54:00:00:00:02"}}}}, runs{})
	if c != nil {
		g.SpeakBy(c)
	}
	return g
}

// TestUnready: a guest is asked to have its spare NIC as it was, whatever the agent knows of what was done before;
// what cannot be asked is left alone.
func TestUnready(t *testing.T) {
	for _, c := range []struct {
		name    string
		network string
		work    *sourceWork
		err     error
		want    bool
		change  func(g *guests.Guest)
	}{
		{name: "the agent that made it ready", network: "mptcp", work: &sourceWork{capabilities: []string{guest.CapReady}}, want: true},
		{name: "one that was started again", network: "mptcp", work: &sourceWork{}, want: true},
		{name: "a guest that cannot be ready", network: "drain", work: &sourceWork{}, err: errors.New("unknown method"), want: true},
		{name: "its address is kept", network: "tunnel", work: &sourceWork{}},
		{name: "nobody can be asked", network: "mptcp", work: &sourceWork{}, change: func(g *guests.Guest) { g.Remember(func(h *care.Held) { h.Description.Agent = config.AgentDHCP }) }},
		{name: "its QEMU is gone", network: "mptcp", work: &sourceWork{}, change: func(g *guests.Guest) { g.RunsIn(goneMachine{}) }},
		{name: "nothing is known of it", network: "mptcp", work: &sourceWork{}, change: func(g *guests.Guest) { g.Remember(func(h *care.Held) { h.Description.NICs = nil }) }},
	} {
		a := bareAgent(t, &config.Config{})
		a.ctx = t.Context()
		asked := make(chan guest.Configure, 1)
		g := twoNICGuest(spare{asked: asked, err: c.err})
		wait := 5 * time.Second
		if c.change != nil {
			c.change(g)
		}
		if !c.want {
			wait = 20 * time.Millisecond
		}
		m := &outgoing{a: a, guest: g, plan: migration.Plan{ID: "m-00000001", Guest: "web", Network: c.network}, work: c.work}
		m.unreadyGuest()
		select {
		case p := <-asked:
			if !c.want || p.MAC != "52:54:00:00:00:02" || len(p.Addrs) > 0 {
				t.Errorf("%s: asked for %+v", c.name, p)
			}
		case <-time.After(wait):
			if c.want {
				t.Errorf("%s: nobody asked", c.name)
			}
		}
	}
}

// TestStaysReady: a guest stays ready for ten minutes; one that is copied for longer is asked again before, however many
// steps the copy has, and not once it ends.
func TestStaysReady(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const stays = 10 * time.Minute
		a := bareAgent(t, &config.Config{})
		a.detours = detour.New("", config.Network{}, nil)
		asked := make(chan guest.Configure)
		m := &outgoing{a: a, guest: twoNICGuest(spare{asked: asked}), rec: record.New("paris", migration.Plan{}, time.Now()),
			plan: migration.Plan{ID: "m-00000001", Guest: "web", Network: "mptcp"}, work: &sourceWork{capabilities: []string{guest.CapReady}}}
		last, n := time.Now(), 0
		go func() {
			for range asked {
				if took := time.Since(last); took > stays/2 {
					t.Errorf("asked after %v", took)
				}
				last, n = time.Now(), n+1
			}
		}()
		m.readyGuest(t.Context())()
		for _, takes := range []time.Duration{8 * time.Minute, 2 * time.Minute, time.Second, 25 * time.Minute} {
			err := m.stayReady(t.Context(), func(ctx context.Context) error { sleep(ctx, takes); return nil })
			synctest.Wait()
			if err != nil || time.Since(last) > stays/2 {
				t.Errorf("after %v: %v, last asked %v ago", takes, err, time.Since(last))
			}
		}
		was := n
		time.Sleep(time.Hour)
		synctest.Wait()
		if n != was || n < 10 {
			t.Errorf("asked %d times, and %d after the copy", was, n-was)
		}
		close(asked)
		m.plan.Network = "tunnel"
		if err := m.stayReady(t.Context(), func(ctx context.Context) error { sleep(ctx, time.Hour); return nil }); err != nil {
			t.Error(err)
		}
	})
}

// TestTunnelStaysAwake: what clients send first after a long copy finds keys, which WireGuard keeps for three minutes.
func TestTunnelStaysAwake(t *testing.T) {
	const keysLast = 3 * time.Minute
	dir := t.TempDir()
	keeper, err := net.Listen("unix", filepath.Join(dir, "gwt-00000001.sock"))
	if err != nil {
		t.Fatal(err)
	}
	defer keeper.Close()
	var asked atomic.Int64
	go func() {
		for {
			c, err := keeper.Accept()
			if err != nil {
				return
			}
			asked.Add(1)
			c.Close()
		}
	}()
	synctest.Test(t, func(t *testing.T) {
		a := bareAgent(t, &config.Config{})
		a.detours = detour.New("", config.Network{}, map[string]*detour.Detour{"m-00000001": {ID: "m-00000001", Guest: "web", Tunnel: tunnel.Config{Name: "gwt-00000001", Dir: dir}}})
		m := &outgoing{a: a, plan: migration.Plan{ID: "m-00000001", Guest: "web", Network: "tunnel"}, work: &sourceWork{tunnelUsed: time.Now()}}
		for _, takes := range []time.Duration{time.Second, time.Minute, time.Hour, 20 * time.Second, 20 * time.Second} {
			before := asked.Load()
			if err := m.stayReady(t.Context(), func(ctx context.Context) error { sleep(ctx, takes); return nil }); err != nil {
				t.Error(err)
			}
			if since := time.Since(m.work.tunnelUsed); since > keysLast/3 {
				t.Errorf("after %v: nothing went through the tunnel for %v", takes, since)
			}
			if n := asked.Load() - before; n < int64(takes/keysLast)*3 {
				t.Errorf("within %v the tunnel was tried %d times", takes, n)
			}
		}
		was := asked.Load()
		time.Sleep(time.Hour)
		if asked.Load() != was {
			t.Error("the tunnel was tried after the copy")
		}
	})
}

// runsAt is a QEMU whose guest's channel is at a socket.
type runsAt struct {
	runs
	socket string
}

func (r runsAt) GuestChannel() string { return r.socket }

// TestUnreadyReaches: an agent that was started again has not spoken to the guest yet.
func TestUnreadyReaches(t *testing.T) {
	path, _, clients := agenttest.ChannelSocket(t)
	a := bareAgent(t, &config.Config{})
	a.ctx = t.Context()
	g := twoNICGuest(nil)
	g.RunsIn(runsAt{socket: path})
	m := &outgoing{a: a, guest: g, plan: migration.Plan{ID: "m-00000001", Guest: "web", Network: "mptcp"}, work: &sourceWork{}}
	m.unreadyGuest()
	for end := time.Now().Add(5 * time.Second); clients() == 0 || g.Channel() == nil; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("nobody spoke to the guest")
		}
	}
	g.Channel().Close()
}
