package lab

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"godwit/agent/config"
	"godwit/lab/traffic"
	"godwit/lab/traffic/record"
	"godwit/migration"
	"godwit/netstate/netns"
	"godwit/vm/guest"
)

// Both sites give guests and clients an MTU of 9000, and the way between them carries 1400.
// The desk has the guest's site at first, so its connections agree on segments of 9000.
const jumboWorld = `
name: jumbo
sites:
  - {name: montreal, guest_net: {v4: 10.1.1.0/24, v6: fd00:1:1::/64}, uplinks: [{name: public, rate: 200mbit, delay: 2ms, mtu: 1400}]}
  - {name: sanjose, guest_net: {v4: 10.2.1.0/24, v6: fd00:2:1::/64}, uplinks: [{name: public, rate: 200mbit, delay: 2ms, mtu: 1400}]}
clients:
  - {name: desk, at: montreal}
guests:
  - {name: web, site: montreal, memory: 160MiB}
`

const (
	jumboMTU  = 9000
	jumboPath = 1400
)

// TestJumboGuest moves a guest with an MTU of 9000 over a path of 1400. Connections that
// are open keep their segments of 9000, which the tunnel carries in fragments; those that
// follow find out what the new path carries; those that begin in the tunnel agree on
// segments that fit. In both families nothing is lost, and nothing waits for long.
func TestJumboGuest(t *testing.T) {
	p := newTrialIn(t, &world{mtu: jumboMTU}, jumboWorld, func(string, *config.Config) {})
	info, err := p.guest("montreal", "web")
	p.must(err)
	old := map[string]netip.Addr{}
	for _, a := range info.Addresses {
		old[family(a.Prefix.Addr())] = a.Prefix.Addr()
	}
	begin := func(name, kind, family string, multipath bool) {
		t.Helper()
		p.must(p.w.clients["desk"].Start(traffic.Flow{Name: name, Kind: kind, Target: old[family], MPTCP: multipath, Rate: 5_000_000}))
	}
	go func() {
		for range p.w.clients["desk"].Samples() { //nolint:revive // nobody else reads them
		}
	}()
	for _, family := range []string{"v4", "v6"} {
		begin("down-"+family, traffic.Download, family, true)
		begin("up-"+family, traffic.Upload, family, true)
		begin("plain-down-"+family, traffic.Download, family, false)
		begin("plain-up-"+family, traffic.Upload, family, false)
		if mss := p.segment("desk", old[family], record.PortUpload); mss < jumboMTU-100 {
			t.Errorf("%s: segments of %d bytes before the move: want those of an MTU of %d, or this shows nothing", family, mss, jumboMTU)
		}
	}
	rep := p.ends(p.began(migration.Request{Guest: "web", To: "sanjose", Downtime: 5 * time.Second}), 2*time.Minute)
	if rep.Outcome != migration.Completed || rep.Network != "mptcp" {
		t.Fatalf("%s by %s: %+v, %v", rep.Outcome, rep.Network, rep.Problem, rep.Notes)
	}
	var mtus guest.Executed
	p.must(p.w.agents["sanjose"].client.CallGuest(t.Context(), "web", "exec", guest.Exec{Command: "cat /sys/class/net/eth*/mtu"}, &mtus))
	if got := strings.Fields(mtus.Stdout); len(got) != 2 || got[0] != "9000" || got[1] != "9000" {
		t.Errorf("the guest's NICs have MTUs of %q (%s), want 9000", got, mtus.Stderr)
	}
	for _, family := range []string{"v4", "v6"} {
		begin("late-"+family, traffic.Upload, family, false)
		if mss := p.segment("desk", old[family], record.PortUpload); mss > jumboPath {
			t.Errorf("%s: a connection that began in the tunnel sends segments of %d bytes, want less than %d", family, mss, jumboPath)
		}
	}
	time.Sleep(500 * time.Millisecond)
	for _, name := range []string{"down-v4", "up-v4", "plain-down-v4", "plain-up-v4", "late-v4", "down-v6", "up-v6", "plain-down-v6", "plain-up-v6", "late-v6"} {
		r, err := p.w.clients["desk"].Stop(name)
		p.must(err)
		gap, _ := r.Gap(r.Start, r.End)
		t.Logf("%s: gap %v, retransmits %d", name, gap.Round(time.Millisecond), r.Retransmits)
		if !r.Survived || r.Lost+r.Repeated+r.Corrupt != 0 || gap > jumboGap {
			t.Errorf("%s: survived %v, %d lost, %d repeated, %d corrupt, gap %v", name, r.Survived, r.Lost, r.Repeated, r.Corrupt, gap)
		}
		if moved := r.Connections[0].Moved; moved != r.Flow.MPTCP {
			t.Errorf("%s: moved %v, remotes %v", name, moved, r.Connections[0].Remotes)
		}
	}
}

// jumboGap is longer than any pause here, and shorter than a black hole: what does not
// arrive is sent again and again.
const jumboGap = 3 * time.Second

func family(a netip.Addr) string {
	if a.Is4() {
		return "v4"
	}
	return "v6"
}

// segment is how large the segments are, in bytes, that a client sends on its youngest
// connection to a port of the guest: that with the fewest bytes acknowledged.
func (p *trial) segment(client string, addr netip.Addr, port uint16) int {
	p.Helper()
	number := uint8(unix.AF_INET)
	if addr.Is6() {
		number = unix.AF_INET6
	}
	mss, least := 0, ^uint64(0)
	p.must(netns.Do(p.w.topo.Client(client).Namespace, func() error {
		all, err := netlink.SocketDiagTCPInfo(number)
		for _, s := range all {
			if s.TCPInfo != nil && s.InetDiagMsg.ID.DestinationPort == port && s.InetDiagMsg.ID.Destination.Equal(addr.AsSlice()) && s.TCPInfo.Bytes_acked < least {
				mss, least = int(s.TCPInfo.Snd_mss), s.TCPInfo.Bytes_acked
			}
		}
		return err
	}))
	return mss
}
