package lab

import (
	"context"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"godwit/agent/config"
	"godwit/agent/describe"
	"godwit/lab/traffic"
	"godwit/migration"
	"godwit/netstate/netns"
	"godwit/vm/guest"
)

func TestAdoptedGuestMigratesLikeAnyOther(t *testing.T) {
	w := buildWorld(t, twoSites)
	montreal, sanjose := w.agents["montreal"], w.agents["sanjose"]
	addr := netip.MustParsePrefix("10.1.1.50/24")
	f := startForeign(t, w, "montreal", addr, netip.MustParseAddr("10.1.1.1"))

	flow := traffic.Flow{Name: "ticks", Kind: traffic.Ticks, Target: addr.Addr(), MPTCP: true}
	if err := w.clients["phone"].Start(flow); err != nil {
		t.Fatal(err)
	}
	f.refusals(t, w)
	f.staysHere(t, w, "no start command", func(d *config.Description) { d.Start = nil }, migration.Refused, "no start command")
	f.staysHere(t, w, "would run by itself", func(d *config.Description) {
		d.Start = slices.DeleteFunc(d.Start, func(word string) bool { return word == "-S" })
	}, migration.Aborted, "add -S")
	f.staysHere(t, w, "taps by name", func(d *config.Description) {
		for i, word := range d.Start {
			d.Start[i] = strings.NewReplacer("fd={fd0}", "ifname={tap0},script=no,downscript=no").Replace(word)
		}
	}, migration.Aborted, "Device or resource busy")
	f.staysHere(t, w, "without its second NIC", func(d *config.Description) {
		for _, word := range []string{"tap,id=net1,fd={fd1}", "virtio-net-pci,netdev=net1,mac=" + foreignMACs[1] + ",bus=pcie.0,addr=4,romfile="} {
			i := slices.Index(d.Start, word)
			d.Start = slices.Delete(d.Start, i-1, i+1) // -netdev or -device, and what it is
		}
	}, migration.Aborted, "QEMU has no NIC "+foreignMACs[1])
	cpu := func(option string) func(*config.Description) {
		return func(d *config.Description) { d.Start[slices.Index(d.Start, "-cpu")+1] = option }
	}
	f.staysHere(t, w, "another CPU model", cpu("qemu64"), migration.Aborted, "a CPU of model qemu64, the guest has max; write -cpu max")
	f.staysHere(t, w, "fewer features of its CPU", cpu("max,-avx2"), migration.Aborted, "CPUID 7.0.EBX bit 5)")
	running, err := describe.Look(t.Context(), f.qmp())
	if err != nil {
		t.Fatal(err)
	}
	described, err := describe.Of(running)
	if err != nil {
		t.Fatal(err)
	}
	described.Description.Name = "web"
	if _, err := montreal.client.StartGuest(t.Context(), described.Description); err != nil {
		t.Fatal(err)
	}
	before := only(t, montreal)
	if len(before.Addresses) != 1 || before.Addresses[0].Prefix != addr || before.Taps[1] != "tap-b" {
		t.Errorf("adopted: %+v", before)
	}
	restart(t, montreal)
	if again := only(t, montreal); again.PID != before.PID {
		t.Errorf("after a restart of its agent the guest is process %d, not %d", again.PID, before.PID)
	}

	if rep := migrate(t, montreal, "sanjose"); rep.Outcome != migration.Completed {
		t.Fatalf("montreal → sanjose: %s: %v", rep.Outcome, rep.Problem)
	}
	select {
	case <-f.done:
	case <-time.After(5 * time.Second):
		t.Error("the QEMU that the guest left still runs")
	}
	moved := only(t, sanjose)
	restart(t, sanjose)
	if again := only(t, sanjose); again.PID != moved.PID || !netip.MustParsePrefix("10.2.1.0/24").Contains(again.Addresses[0].Prefix.Addr()) {
		t.Errorf("after a restart of the destination's agent: %+v, before: %+v", again, moved)
	}
	var info guest.Info
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	if err := sanjose.client.CallGuest(ctx, "web", "info", nil, &info); err != nil {
		t.Errorf("call guest: %v", err)
	}
	if rep := migrate(t, sanjose, "montreal"); rep.Outcome != migration.Completed {
		t.Fatalf("sanjose → montreal: %s: %v", rep.Outcome, rep.Problem)
	}
	only(t, montreal)
	tickedOn(t, w)
	forgotten(t, montreal)
}

// tickedOn makes sure that the phone's connection has followed the guest, and lost nothing.
func tickedOn(t *testing.T, w *world) {
	t.Helper()
	time.Sleep(time.Second) // of ticks from where it is now
	r, err := w.clients["phone"].Stop("ticks")
	if err != nil {
		t.Fatal(err)
	}
	if !r.Survived || !r.MPTCP || !r.Connections[0].Moved || r.Lost+r.Repeated+r.Corrupt != 0 {
		t.Errorf("connection: survived %v, MPTCP %v, moved %v, lost %d, repeated %d, corrupt %d",
			r.Survived, r.MPTCP, r.Connections[0].Moved, r.Lost, r.Repeated, r.Corrupt)
	}
}

// A guest that nobody can talk to keeps its address, and its plain connections.
func TestAdoptedGuestWithoutChannelKeepsItsAddress(t *testing.T) {
	w := buildWorld(t, twoSites)
	montreal, sanjose := w.agents["montreal"], w.agents["sanjose"]
	addr := netip.MustParsePrefix("10.1.1.50/24")
	f := startForeign(t, w, "montreal", addr, netip.MustParseAddr("10.1.1.1"))
	d := f.describe(t, w, "channel: "+f.channel(), "network: tunnel\naddresses: [{prefix: "+addr.String()+"}]",
		"socket,id=guest,server=on,wait=off,path={channel}", "null,id=guest")
	if _, err := montreal.client.StartGuest(t.Context(), d); err != nil {
		t.Fatal(err)
	}
	if err := w.clients["phone"].Start(traffic.Flow{Name: "ticks", Kind: traffic.Ticks, Target: addr.Addr()}); err != nil {
		t.Fatal(err)
	}
	sanjose.config.Routes = &config.Routes{Table: 6700}
	if err := netns.Do(sanjose.host.Namespace, func() error { return os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("1"), 0) }); err != nil {
		t.Fatal(err)
	}
	restart(t, sanjose)
	if rep := migrate(t, montreal, "sanjose"); rep.Outcome != migration.Completed || rep.Network != "tunnel" {
		t.Fatalf("montreal → sanjose by %s: %s: %v", rep.Network, rep.Outcome, rep.Problem)
	}
	moved := only(t, sanjose)
	restart(t, sanjose)
	if again := only(t, sanjose); again.PID != moved.PID || again.Addresses[0].Prefix != addr {
		t.Errorf("after a restart of the destination's agent: %+v, before: %+v", again, moved)
	}
	routes, err := exec.Command("ip", "-n", sanjose.host.Namespace, "route", "show", "table", "6700").CombinedOutput()
	if err != nil || !strings.HasPrefix(string(routes), addr.Addr().String()+" dev ") {
		t.Errorf("published for BGP: %s, %v; want %s", routes, err, addr.Addr())
	}
	time.Sleep(time.Second)
	r, err := w.clients["phone"].Stop("ticks")
	if err != nil {
		t.Fatal(err)
	}
	if !r.Survived || r.Lost+r.Repeated+r.Corrupt != 0 {
		t.Errorf("connection: survived %v, lost %d, repeated %d, corrupt %d", r.Survived, r.Lost, r.Repeated, r.Corrupt)
	}
}

// refusals tries what cannot be adopted: each is refused in one line, and nothing changes.
func (f *foreign) refusals(t *testing.T, w *world) {
	for _, c := range []struct {
		name    string
		replace []string
		change  func(*config.Description)
		want    string
	}{
		{name: "no such socket", replace: []string{"qmp: " + f.qmp(), "qmp: " + f.dir + "/none"}, want: "no QEMU runs there"},
		{name: "not a QMP socket", replace: []string{"qmp: " + f.qmp(), "qmp: " + f.host.config.Socket()}, want: "not QEMU"},
		{name: "another MAC", replace: []string{`{mac: "` + foreignMACs[1], `{mac: "52:54:00:aa:01:0c`}, want: "no NIC with the MAC 52:54:00:aa:01:0c"},
		{name: "no MAC", replace: []string{`{mac: "` + foreignMACs[1], `{mac: "52:54`}, want: `MAC "52:54" is not one`},
		{name: "taps the wrong way round", replace: []string{"tap: tap-a", "tap: tap-b", "tap: tap-b", "tap: tap-a"}, want: "is connected to tap tap-a, the description says tap-b"},
		{name: "no tap", replace: []string{", tap: tap-b", ""}, want: "name the tap"},
		{name: "one NIC", change: func(d *config.Description) { d.NICs = d.NICs[:1] }, want: "has 2 NICs, the description names 1"},
		{name: "other memory", replace: []string{"memory: 192MiB", "memory: 1GiB"}, want: "write 192MiB"},
		{name: "no such channel", replace: []string{"channel: " + f.channel(), "channel: " + f.dir + "/none"}, want: "no answer on its channel"},
		{name: "no channel, no addresses", change: func(d *config.Description) { d.Channel = "" }, want: "must name its addresses"},
		{name: "a name that is a path", change: func(d *config.Description) { d.Name = "../web%d" }, want: "its name must be one word"},
		{name: "no qmp", change: func(d *config.Description) { d.QMP = "" }, want: "qmp is missing"},
		{name: "another image", change: func(d *config.Description) {
			*d = config.Description{Name: d.Name, Memory: d.Memory, NICs: d.NICs, Image: "huge"}
		}, want: `image "huge" is unknown`},
		{name: "an address of elsewhere", change: func(d *config.Description) {
			d.Addresses = []migration.Address{{Prefix: netip.MustParsePrefix("10.9.1.5/24")}}
		}, want: "not of this site's subnet"},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := f.describe(t, w, c.replace...)
			if c.change != nil {
				c.change(&d)
			}
			_, err := f.host.client.StartGuest(t.Context(), d)
			if err == nil || !strings.Contains(err.Error(), c.want) || strings.ContainsAny(err.Error(), "\n") || strings.Contains(err.Error(), "%!") {
				t.Errorf("%v: want one line with %q", err, c.want)
			}
			t.Log(err)
			info, err := f.host.client.Host(t.Context())
			if err != nil || len(info.Guests) != 0 {
				t.Errorf("under care: %+v, %v", info.Guests, err)
			}
			for _, dir := range []string{filepath.Join(f.host.config.Run, "guests"), filepath.Join(f.host.config.State, "guests")} {
				if left, _ := filepath.Glob(dir + "/*"); len(left) > 0 {
					t.Errorf("left: %v", left)
				}
			}
		})
	}
}

// staysHere adopts the guest by a description that no destination can start: the
// migration ends where it began, says why, and leaves nothing.
func (f *foreign) staysHere(t *testing.T, w *world, name string, change func(*config.Description), outcome migration.Outcome, want string) {
	t.Run(name, func(t *testing.T) {
		d := f.describe(t, w)
		change(&d)
		if _, err := f.host.client.StartGuest(t.Context(), d); err != nil {
			t.Fatal(err)
		}
		rep := migrate(t, f.host, "sanjose")
		if rep.Outcome != outcome || rep.Problem == nil || !strings.Contains(rep.Problem.Text, want) || strings.Contains(rep.Problem.Text, "\n") {
			t.Errorf("%s: %v; want %s, and one line with %q", rep.Outcome, rep.Problem, outcome, want)
		}
		t.Log(rep.Problem)
		only(t, f.host)
		there := w.agents["sanjose"]
		if pids := netns.Processes(there.host.Namespace); len(pids) != 1 {
			t.Errorf("processes at the destination: %v; want its agent alone", pids)
		}
		if left, _ := filepath.Glob(filepath.Join(there.config.Run, "guests", "*")); len(left) > 0 {
			t.Errorf("left at the destination: %v", left)
		}
		if err := f.host.client.ForgetGuest(t.Context(), "web"); err != nil {
			t.Error(err)
		}
	})
}

// forgotten ends the guest while nobody cares: the next agent must not remember it.
func forgotten(t *testing.T, a *hostAgent) {
	t.Helper()
	pid := only(t, a).PID
	if err := a.kill(); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(5 * time.Second); syscall.Kill(pid, 0) == nil && time.Now().Before(deadline); {
		time.Sleep(10 * time.Millisecond)
	}
	if err := a.start(t.Context()); err != nil {
		t.Fatal(err)
	}
	info, err := a.client.Host(t.Context())
	if err != nil || len(info.Guests) != 0 {
		t.Errorf("a guest that is gone is under care: %+v, %v", info.Guests, err)
	}
	if left, _ := filepath.Glob(filepath.Join(a.config.State, "guests", "*")); len(left) > 0 {
		t.Errorf("a guest that is gone is remembered: %v", left)
	}
	if ended, err := a.client.Ended(t.Context()); err != nil || len(ended) != 1 || ended[0].Description.Name != "web" || len(ended[0].Description.Start) == 0 {
		t.Errorf("what it was is not kept: %+v, %v", ended, err)
	}
}
