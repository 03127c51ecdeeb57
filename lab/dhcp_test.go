package lab

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"godwit/lab/traffic"
	"godwit/migration"
	"godwit/vm/guest"
)

// leaseClient sets up what a guest without a program of ours has: a client of DHCP on its
// second NIC, which leads answers from the address that it gets out of that NIC.
const leaseClient = `set -e
for dev in /sys/class/net/*; do [ "$(cat $dev/address)" != MAC ] || nic=${dev##*/}; done
cat >/tmp/lease <<'END'
#!/bin/busybox sh
[ "$1" = bound ] || [ "$1" = renew ] || exit 0
busybox ip addr replace "$ip/$mask" dev "$interface"
busybox ip route replace default via "$router" dev "$interface" table 200
busybox ip rule del from "$ip" 2>/dev/null
busybox ip rule add from "$ip" lookup 200
END
chmod 700 /tmp/lease
busybox ip link set dev $nic up
busybox udhcpc -i $nic -b -t 1 -T 1 -A 1 -s /tmp/lease >/tmp/udhcpc 2>&1
`

// A guest in which nobody can be asked gets its next address from the agent's DHCP server.
// Its old connections live on through the tunnel, and new ones go to the new address.
func TestGuestWithoutProgramTakesItsAddressByDHCP(t *testing.T) {
	w := buildWorld(t, twoSites)
	montreal, sanjose := w.agents["montreal"], w.agents["sanjose"]
	addr := netip.MustParsePrefix("10.1.1.50/24")
	f := startForeign(t, w, "montreal", addr, netip.MustParseAddr("10.1.1.1"))
	f.exec(t, strings.ReplaceAll(leaseClient, "MAC", foreignMACs[1]))
	d := f.describe(t, w, "channel: "+f.channel(), "agent: dhcp\naddresses: [{prefix: "+addr.String()+"}]",
		"socket,id=guest,server=on,wait=off,path={channel}", "null,id=guest")
	if _, err := montreal.client.StartGuest(t.Context(), d); err != nil {
		t.Fatal(err)
	}
	phone := w.clients["phone"]
	for _, flow := range []traffic.Flow{
		{Name: "tcp", Kind: traffic.Ticks, Target: addr.Addr()},
		{Name: "udp", Kind: traffic.UDP, Target: addr.Addr(), Every: 5 * time.Millisecond},
	} {
		if err := phone.Start(flow); err != nil {
			t.Fatal(err)
		}
	}
	rep := migrate(t, montreal, "sanjose")
	if rep.Outcome != migration.Completed || rep.Network == "tunnel" {
		t.Fatalf("montreal → sanjose by %s: %s: %v; %v", rep.Network, rep.Outcome, rep.Problem, rep.Notes)
	}
	has := only(t, sanjose).Addresses
	if len(has) != 2 || !netip.MustParsePrefix("10.2.1.0/24").Contains(has[0].Prefix.Addr()) || has[1].Prefix != addr {
		t.Fatalf("the guest has %+v, want a next address and its old one", has)
	}
	fresh := traffic.Flow{Name: "fresh", Kind: traffic.Ticks, Target: has[0].Prefix.Addr()}
	if err := phone.Start(fresh); err != nil {
		t.Fatalf("a new connection to the next address: %v", err)
	}
	restart(t, sanjose)
	if again := migrate(t, sanjose, "montreal"); again.Outcome != migration.Refused || !strings.Contains(fmt.Sprint(again.Problem), "its other NIC still has 10.1.1.50") {
		t.Errorf("on with a kept address: %s: %v", again.Outcome, again.Problem)
	}
	time.Sleep(time.Second) // of records after all this
	for _, name := range []string{"tcp", "udp", "fresh"} {
		r, err := phone.Stop(name)
		if err != nil {
			t.Fatal(err)
		}
		if !r.Survived || r.Repeated+r.Corrupt != 0 || name != "udp" && r.Lost != 0 { // a full link may drop a datagram
			t.Errorf("%s: survived %v, lost %d, repeated %d, corrupt %d", name, r.Survived, r.Lost, r.Repeated, r.Corrupt)
		}
	}
}

// exec runs a command in the guest, as its owner would on its console.
func (f *foreign) exec(t *testing.T, command string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	c, err := guest.Dial(ctx, f.channel())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	var out guest.Executed
	if err := c.Call(ctx, "exec", guest.Exec{Command: command, TimeoutMS: 30000}, &out); err != nil || out.Exit != 0 {
		t.Fatalf("in the guest: %v; exit %d: %s%s", err, out.Exit, out.Stdout, out.Stderr)
	}
}
