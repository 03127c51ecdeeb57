package lab

import (
	"context"
	"net/netip"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"godwit/lab/traffic"
	"godwit/migration"
	"godwit/vm/guest"
)

// TestGuestBootsAnewAfterItMoved: a guest whose QEMU goes on over its reboot has its new site's address again when it is
// up, also where its own services set that of the site that it left, and where the agent was away.
func TestGuestBootsAnewAfterItMoved(t *testing.T) {
	w := buildWorld(t, twoSites)
	montreal, sanjose := w.agents["montreal"], w.agents["sanjose"]
	addr, gateway := netip.MustParsePrefix("10.1.1.50/24"), netip.MustParseAddr("10.1.1.1")
	f := startForeign(t, w, "montreal", addr, gateway)
	if _, err := montreal.client.StartGuest(t.Context(), f.describe(t, w, `  - "-no-reboot"`+"\n", "")); err != nil {
		t.Fatal(err)
	}
	if rep := migrate(t, montreal, "sanjose"); rep.Outcome != migration.Completed {
		t.Fatalf("montreal → sanjose: %s: %v", rep.Outcome, rep.Problem)
	}
	moved := only(t, sanjose)
	next := moved.Addresses[0].Prefix.Addr()
	b := bootsAnew{T: t, a: sanjose, next: next, boot: sanjose.boot(t).BootID}

	if err := sanjose.client.CallGuest(t.Context(), "web", "reboot", nil, nil); err != nil {
		t.Fatal(err)
	}
	b.comesBack("it rebooted")
	own := guest.Configure{MAC: foreignMACs[0], Addrs: []netip.Prefix{addr}, GatewayV4: gateway, Table: 100, Main: true}
	if err := sanjose.client.CallGuest(t.Context(), "web", "configure", own, nil); err != nil {
		t.Fatal(err)
	}
	b.comesBack("it set its own address")
	if err := w.clients["phone"].Start(traffic.Flow{Name: "ticks", Kind: traffic.Ticks, Target: next, MPTCP: true}); err != nil {
		t.Fatal(err)
	}
	time.Sleep(time.Second)
	r, err := w.clients["phone"].Stop("ticks")
	if err != nil || !r.Survived || r.Records == 0 {
		t.Errorf("a connection to its address: %+v, %v", r, err)
	}

	b.rebootsAlone()
	b.comesBack("it rebooted while the agent was away")
	again := only(t, sanjose)
	for end := time.Now().Add(20 * time.Second); again.Booted == "" && time.Now().Before(end); again = only(t, sanjose) {
		time.Sleep(100 * time.Millisecond) // the agent hears a moment later that the guest has it
	}
	if again.PID != moved.PID || !strings.HasSuffix(again.Booted, "has its address again") {
		t.Errorf("%+v; before: %+v", again, moved)
	}
}

// bootsAnew is guest web on a host, which is to have next on its second NIC and nothing on its first.
type bootsAnew struct {
	*testing.T
	a    *hostAgent
	next netip.Addr
	boot string // the one before
}

// boot is what the guest says of itself.
func (h *hostAgent) boot(t *testing.T) (info guest.Info) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	if err := h.client.CallGuest(ctx, "web", "info", nil, &info); err != nil {
		t.Log(err)
	}
	return info
}

// comesBack waits until it is so.
func (b *bootsAnew) comesBack(what string) {
	b.Helper()
	begun := time.Now()
	var info guest.Info
	for time.Since(begun) < time.Minute {
		info = b.a.boot(b.T)
		has := map[string]netip.Addr{}
		for _, n := range info.NICs {
			for _, p := range n.Addrs {
				has[n.MAC] = p.Addr()
			}
		}
		if has[foreignMACs[1]] == b.next && !has[foreignMACs[0]].IsValid() && info.BootID != b.boot {
			b.Logf("%s: after %.1f s it has %s", what, time.Since(begun).Seconds(), b.next)
			return
		}
		time.Sleep(200 * time.Millisecond)
	}
	b.Fatalf("%s: a minute later it is %+v; want %s on its second NIC alone, in another boot than %s", what, info, b.next, b.boot)
}

// rebootsAlone has it reboot while its host's agent is away.
func (b *bootsAnew) rebootsAlone() {
	b.Helper()
	dir := only(b.T, b.a).Dir
	b.boot = b.a.boot(b.T).BootID
	if err := b.a.kill(); err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(b.Context(), 20*time.Second)
	defer cancel()
	c, err := guest.Dial(ctx, filepath.Join(dir, "guest.sock"))
	if err != nil {
		b.Fatal(err)
	}
	err = c.Reboot(ctx)
	c.Close()
	if err != nil {
		b.Fatal(err)
	}
	time.Sleep(time.Second)
	if err := b.a.start(b.Context()); err != nil {
		b.Fatal(err)
	}
}
