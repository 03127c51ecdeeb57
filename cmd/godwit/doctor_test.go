package main

import (
	"bytes"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"godwit/agent/addresses"
	"godwit/agent/config"
	"godwit/agent/leftover"
	"godwit/agent/peer"
	"godwit/internal/need"
	"godwit/netstate/netns"
	"godwit/vm/qemu"
	"godwit/vm/qemu/qmp"
)

// looks checks what a finding is, by its mark and its words.
func looks(t *testing.T, name string, f finding, mark, words string) {
	t.Helper()
	var out bytes.Buffer
	printFindings(&out, []finding{f})
	if !strings.HasPrefix(out.String(), mark) || !strings.Contains(out.String(), words) || f.OK == (mark == strings.ToUpper(mark)) {
		t.Errorf("%s: %q, want %s and %q", name, out.String(), mark, words)
	}
}

func TestDoctorOfTheKernel(t *testing.T) {
	for release, mark := range map[string]string{
		"5.12.0": "ok", "6.1.0-13-amd64": "ok", "5.11.22": "LACK", "4.19.0-6-amd64": "LACK", "10.0-rc1": "ok", "what": "note",
	} {
		looks(t, release, kernelOf(release), mark, release)
	}
	file := filepath.Join(t.TempDir(), "tun")
	looks(t, "no tun", tun(file), "LACK", "load the module tun")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	looks(t, "tun", tun(file), "ok", file)
	geteuid = func() int { return 1000 }
	t.Cleanup(func() { geteuid = os.Geteuid })
	looks(t, "tun without root", tunOf("/dev/net/tun", os.ErrPermission), "note", "only root can")
	looks(t, "what fails", tried("nftables", "answers", "load it", func() error { return errors.New("no") }), "LACK", "no; load it")
	looks(t, "what does not", tried("nftables", "answers", "load it", func() error { return nil }), "ok", "answers")
}

func TestDoctorOfWireGuard(t *testing.T) {
	for _, c := range []struct{ file, text, mark string }{
		{"sys/module/wireguard/refcnt", "0", "ok"},
		{"lib/modules/6.1/modules.builtin", "kernel/drivers/net/wireguard/wireguard.ko\n", "ok"},
		{"lib/modules/6.1/modules.dep", "kernel/drivers/net/wireguard/wireguard.ko.xz: kernel/net/x.ko\n", "ok"},
		{"lib/modules/6.2/modules.dep", "kernel/drivers/net/wireguard/wireguard.ko: \n", "note"},
		{"lib/modules/6.1/modules.dep", "kernel/drivers/net/tun.ko:\n", "note"},
	} {
		path := filepath.Join(t.TempDir(), c.file)
		root := strings.TrimSuffix(path, c.file)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(c.text), 0o600)); err != nil {
			t.Fatal(err)
		}
		looks(t, c.file, wireGuard(root, "6.1"), c.mark, "wireguard")
	}
}

// What only labs need is no lack of a host that has an agent's configuration.
func TestDoctorOfAnAgentsHost(t *testing.T) {
	none := errors.New("no image")
	looks(t, "image, agent", guestImage(none, &config.Config{}), "note", "only the lab needs it: no image")
	looks(t, "image, lab", guestImage(none, nil), "LACK", "no image")
	looks(t, "image", guestImage(nil, nil), "ok", "found")
	looks(t, "mptcp, agent", mptcp(false, &config.Config{}), "note", "qemu-mptcp")
	looks(t, "mptcp, lab", mptcp(false, nil), "LACK", "no MPTCP")
	looks(t, "qemu", emulator(qemu.Host{Version: qmp.Version{Major: 7, Minor: 1}, Accel: "kvm"}, nil), "LACK", "7.2 or newer")
	looks(t, "no qemu", emulator(qemu.Host{}, errors.New("no such program")), "LACK", "no such program; install qemu-system-x86, 7.2 or newer where KVM works, else 10 (")
}

func TestDoctorOfUplinks(t *testing.T) {
	at := netip.MustParseAddr
	for _, c := range []struct {
		uplink      config.Uplink
		mark, words string
	}{
		{config.Uplink{Name: "public", Device: "lo", Address: at("127.0.0.1")}, "ok", "lo 127.0.0.1"},
		{config.Uplink{Name: "public", Address: at("127.0.0.1")}, "ok", "127.0.0.1"},
		{config.Uplink{Name: "public", Device: "lo", Address: at("192.0.2.7")}, "LACK", "device lo has no address 192.0.2.7"},
		{config.Uplink{Name: "public", Address: at("192.0.2.7")}, "LACK", "no device has the address 192.0.2.7"},
		{config.Uplink{Name: "public", Device: "no-such", Address: at("127.0.0.1")}, "LACK", "device no-such: no such device"},
	} {
		looks(t, c.words, uplink(c.uplink), c.mark, c.words)
	}
}

func TestDoctorOfTheCertificate(t *testing.T) {
	dir, now := t.TempDir(), time.Now()
	ca, err := peer.NewFleetCA(dir, now)
	if err != nil {
		t.Fatal(err)
	}
	if err := ca.Issue("rome", now); err != nil {
		t.Fatal(err)
	}
	c := &config.Config{Host: "rome", TLS: config.TLSFiles{CA: filepath.Join(dir, "ca.pem"), Cert: filepath.Join(dir, "rome.pem"), Key: filepath.Join(dir, "rome.key")}}
	looks(t, "now", certificate(c, now), "ok", "of host rome, good until ")
	looks(t, "soon", certificate(c, now.AddDate(0, 11, 15)), "note", "is good until")
	later := now.AddDate(1, 0, 1)
	looks(t, "later", certificate(c, later), "LACK", "it expired at "+now.AddDate(1, 0, 0).UTC().Format(time.DateTime)+" UTC by this host's clock, which shows "+
		later.UTC().Format(time.DateTime)+" UTC; set the clock right if it is not; else "+peer.Cure)
	looks(t, "before", certificate(c, time.Unix(60, 0)), "ok", "of host rome, good until ") // a host that boots in 1970
	c.Host = "paris"
	looks(t, "another's", certificate(c, now), "LACK", `is host "rome"'s, and the configuration is for host paris`)
	if _, err := peer.NewFleetCA(dir, now); err != nil { // another fleet's
		t.Fatal(err)
	}
	c.Host = "rome"
	looks(t, "another fleet's", certificate(c, now), "LACK", "other hosts do not believe it")
	looks(t, "another fleet's", certificate(c, now), "LACK", peer.Cure)
	c.TLS.Key = "none"
	looks(t, "no key", certificate(c, now), "LACK", "open none: no such file or directory; "+peer.Cure)
}

// TestDoctorOfDirectories: the agent's own are there, or can be made; else it would not start.
func TestDoctorOfDirectories(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	looks(t, "there", directory("run", dir), "ok", dir+"\n")
	looks(t, "to be made", directory("run", filepath.Join(dir, "a", "b")), "ok", "b: it is made when the agent starts")
	looks(t, "a file", directory("state", file), "LACK", file+": not a directory; name a directory that can be written by state")
	looks(t, "below a file", directory("state", filepath.Join(file, "a")), "LACK", "not a directory; name")
	link := filepath.Join(dir, "link") // to a volume that is not there just now
	if err := os.Symlink(filepath.Join(dir, "volume"), link); err != nil {
		t.Fatal(err)
	}
	looks(t, "a link to nothing", directory("state", link), "LACK", link+" leads to "+filepath.Join(dir, "volume")+", which is not there; mount or make that, or name a directory that can be written by state")
	looks(t, "below that", directory("state", filepath.Join(link, "a")), "LACK", link+" leads to")
	if inMemory("/proc/none/there") || !inMemory(tmpfs(t)) {
		t.Error("what is in memory is not known")
	}
}

// tmpfs is a directory in memory.
func tmpfs(t *testing.T) string {
	dir, err := os.MkdirTemp("/dev/shm", "godwit-test-")
	if err != nil {
		t.Skip("no /dev/shm: ", err)
	}
	t.Cleanup(func() { os.Remove(dir) })
	return dir
}

// TestDoctorOfTheConfiguration: each thing that it names is looked at.
func TestDoctorOfTheConfiguration(t *testing.T) {
	c := &config.Config{Host: "rome", Network: config.Network{Bridge: "no-bridge", LAN: "no-lan"}, Uplinks: []config.Uplink{
		{Name: "public", Device: "lo", Address: netip.MustParseAddr("127.0.0.1")}, {Name: "private", Device: "no-such", Rate: 200},
	}, Fence: "/no/fence", State: "/dev/null/state", Run: t.TempDir()}
	var out bytes.Buffer
	printFindings(&out, configured(t.Context(), c))
	for _, want := range []string{"LACK  guests' bridge network.bridge no-bridge", "network.lan no-lan", "ok    uplink public", "LACK  uplink private", "LACK  state          stat /dev/null/state: not a directory", "ok    run ", "LACK  configuration  fence /no/fence: no such file", "note  configuration  uplinks[1] private: rate of 200 bit/s", "LACK  certificate"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, out.String())
		}
	}
}

// TestDoctorOfRouters: one for which surely nobody is there is lacking.
func TestDoctorOfRouters(t *testing.T) {
	addr := netip.MustParseAddr("10.2.1.1")
	for mark, r := range map[string]addresses.Router{
		"ok    guests' router 10.2.1.1 answers": {Addr: addr},
		"LACK  guests' router nobody":           {Addr: addr, Silent: "nobody", Sure: true},
		"note  guests' router nobody":           {Addr: addr, Silent: "nobody"},
	} {
		for _, f := range routers([]addresses.Router{r}) {
			looks(t, mark, f, mark[:4], "guests' router")
			var out bytes.Buffer
			if printFindings(&out, []finding{f}); !strings.HasPrefix(out.String(), mark) {
				t.Errorf("%q, want %q", out.String(), mark)
			}
		}
	}
	one := []addresses.Router{{Addr: addr, NotAsked: errors.New("network.gateway4: not asked for")}, {Addr: addr}}
	looks(t, "cannot be asked", routers(one)[0], "note", "network.gateway4: not asked for")
	looks(t, "one cannot be asked", routers(one)[1], "ok", "10.2.1.1 answers")
	geteuid = func() int { return 1000 }
	t.Cleanup(func() { geteuid = os.Geteuid })
	looks(t, "without root", routers(one)[0], "note", "10.2.1.1: not asked for: only root can")
}

// TestDoctorAsksTwice: a router that answers a moment later is there; what bars nobody is not waited for.
func TestDoctorAsksTwice(t *testing.T) {
	for first, want := range map[addresses.Router]int{{Silent: "nobody", Sure: true}: 2, {Silent: "nobody"}: 1, {}: 1} {
		asked := 0
		all := askTwice(t.Context(), func() []addresses.Router {
			if asked++; asked == 1 {
				return []addresses.Router{first}
			}
			return []addresses.Router{{}}
		})
		if asked != want || all[0].Sure {
			t.Errorf("%+v: asked %d times, %+v", first, asked, all)
		}
	}
}

// TestDoctorOfABridge: one that keeps guests silent for a while is well, and told of.
func TestDoctorOfABridge(t *testing.T) {
	need.Root(t)
	err := netns.Once(func() error {
		for _, line := range []string{"link add br0 up type bridge stp_state 1", "link add lan0 master br0 type veth peer name far0"} {
			if out, err := exec.CommandContext(t.Context(), "ip", strings.Fields(line)...).CombinedOutput(); err != nil {
				return fmt.Errorf("ip %s: %w: %s", line, err, out)
			}
		}
		all := network(t.Context(), config.Network{Bridge: "br0", LAN: "lan0"})
		if len(all) != 2 {
			return fmt.Errorf("%+v", all)
		}
		looks(t, "it is there", all[0], "ok", "br0, with lan0 as its port")
		looks(t, "it listens", all[1], "note", "spanning tree")
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestDoctorOfThings: what bars a guest until a person has looked is not well.
func TestDoctorOfThings(t *testing.T) {
	for _, c := range []struct {
		thing leftover.Thing
		mark  string
	}{
		{leftover.Thing{Kind: leftover.Tap, Name: "tap0", Owner: "guest web"}, "ok"},
		{leftover.Thing{Kind: leftover.Tap, Name: "tap0"}, "LEFT"},
		{leftover.Thing{Kind: leftover.Disk, Name: "web-2-root.raw", Stays: "it may be the only copy"}, "note"},
		{leftover.Thing{Kind: leftover.Guest, Name: "web-2", Stays: "its QEMU 7 lives"}, "LOOK"},
		{leftover.Thing{Kind: leftover.Journal, Name: "m-00000001.journal", Stays: "cannot be read"}, "LOOK"},
	} {
		looks(t, string(c.thing.Kind), ofThing(c.thing), c.mark, c.thing.Name)
	}
}

// TestDoctorSaysAll: where something cannot be looked at, the rest is told nevertheless.
func TestDoctorSaysAll(t *testing.T) {
	state := t.TempDir()
	if err := os.WriteFile(filepath.Join(state, "guests"), nil, 0o600); err != nil { // no folder
		t.Fatal(err)
	}
	c := newDoctor()
	c.SetContext(t.Context())
	out := lookAtHost(c, &config.Config{Host: "here", State: state, Run: state}, true)
	if len(out) == 0 || out[len(out)-1].OK {
		t.Errorf("%+v", out)
	}
}
