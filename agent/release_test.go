package agent

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"godwit/agent/journal"
	"godwit/agent/peer"
	"godwit/migration"
)

var loopback = netip.MustParseAddr("127.0.0.1")

// linked is a link from one host to another whose agent answers by handler.
func linked(t *testing.T, from, to string, handler http.Handler) *peer.Link {
	t.Helper()
	return linkedFor(t, from, to, handler, func(*peer.Stream) {})
}

// linkedFor is one whose agent takes streams as well.
func linkedFor(t *testing.T, from, to string, handler http.Handler, stream func(*peer.Stream)) *peer.Link {
	t.Helper()
	dir := t.TempDir()
	ca, err := peer.NewFleetCA(dir, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	identity := func(host string) *peer.Identity {
		if err := ca.Issue(host, time.Now()); err != nil {
			t.Fatal(err)
		}
		id, err := peer.LoadIdentity(filepath.Join(dir, "ca.pem"), filepath.Join(dir, host+".pem"), filepath.Join(dir, host+".key"))
		if err != nil {
			t.Fatal(err)
		}
		return id
	}
	ln, err := net.Listen("tcp", netip.AddrPortFrom(loopback, 0).String())
	if err != nil {
		t.Fatal(err)
	}
	at := netip.MustParseAddrPort(ln.Addr().String())
	ln.Close()
	if _, err := peer.Serve(t.Context(), identity(to), []netip.AddrPort{at}, handler, stream, slog.New(slog.DiscardHandler)); err != nil {
		t.Fatal(err)
	}
	link := peer.NewLink(identity(from), to, at.Port(), []peer.Path{{Name: "lo", Local: loopback, Remote: loopback}})
	t.Cleanup(link.Close)
	return link
}

// TestDoubtIsNotAskedInAHotLoop: a destination that answers at once that it cannot say more,
// as it may for as long as nobody decides, is asked on at leisure.
func TestDoubtIsNotAskedInAHotLoop(t *testing.T) {
	a := bareAgent(t, &Config{Host: "paris"})
	a.ctx, a.feed = t.Context(), newFeed()
	var err error
	if a.detours, err = loadDetours(a.config.dir("detours.json"), Network{}); err != nil {
		t.Fatal(err)
	}
	plan := migration.Plan{ID: "m-00000001", Guest: "web", From: "paris", To: "rome", Epoch: 2}
	log, err := journal.Create(a.config.dir("journal"), plan.ID)
	if err != nil {
		t.Fatal(err)
	}
	var asked atomic.Int32
	link := linked(t, "paris", "rome", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked.Add(1)
		peer.Answer(w, ReleaseAnswer{State: "waiting", Vanished: "its QEMU is gone"}, nil)
	}))
	m := &outgoing{
		a: a, guest: &Guest{}, link: link, plan: plan, log: log, work: &sourceWork{}, rec: newRecord("paris", plan, time.Now()),
		inbox: make(chan migration.Input, 1), state: migration.Source{Course: migration.Forward, Epoch: 2},
	}
	for m.state.Doing() != migration.Release {
		m.state.At++
	}
	ctx, end := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		m.run(ctx, migration.Input{Kind: migration.Restarted})
	}()
	for asked.Load() < 2 { // it does ask on
		time.Sleep(time.Millisecond)
	}
	before := asked.Load()
	time.Sleep(4 * repairPause)
	if n := asked.Load() - before; n > 10 {
		t.Errorf("asked %d times in %v", n, 4*repairPause)
	}
	end()
	<-ended
}
