package leftover

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"godwit/agent/care"
	"godwit/agent/config"
	"godwit/agent/journal"
	"godwit/agent/record"
	"godwit/internal/child"
	"godwit/internal/need"
	"godwit/migration"
	"godwit/netstate"
	"godwit/netstate/netns"
	"godwit/netstate/tunnel"
	"godwit/transfer/encode/visit"
	"godwit/transfer/inlet"
	"godwit/vm"
)

func TestMain(m *testing.M) {
	child.Dispatch()
	os.Exit(m.Run())
}

// host is a namespace with a bridge, and an agent's directories.
type host struct {
	*testing.T
	name   string
	config *config.Config
}

func newHost(t *testing.T) *host {
	need.Root(t)
	need.Program(t, "ip")
	h := &host{t, fmt.Sprintf("t-left-%d", os.Getpid()), &config.Config{Host: "here", State: t.TempDir(), Run: t.TempDir(), KeepMemory: 1 << 30}}
	if err := netns.Create(h.name); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		h.do(func() error { // nothing of a test outlives it
			ctx := context.Background() // the test's has ended
			found, err := tunnel.Found(ctx, h.tunnels())
			for _, f := range found {
				tunnel.Down(ctx, h.tunnels(), f.Name)
			}
			return err
		})
		netns.Delete(h.name)
	})
	h.ip("link add br0 type bridge", "link set br0 up", "link add lan0 type veth peer name far0", "link set lan0 master br0 up",
		"link set lo up", "addr add 10.9.0.1/24 dev br0", "route add default via 10.9.0.2")
	for _, dir := range []string{"guests", "disks", "history"} {
		h.must(os.MkdirAll(filepath.Join(h.config.State, dir), 0o700))
	}
	return h
}

// keepMemory keeps memory of a guest that left.
func (h *host) keepMemory(name string) (path string) {
	h.Helper()
	at := filepath.Join(h.config.Run, "memory.key")
	h.must(visit.MakeKey(at))
	key, err := visit.ReadKey(at)
	h.must(err)
	w, err := visit.Create(filepath.Join(h.config.State, "visits"), key)
	h.must(err)
	h.must(w.Name(name))
	return filepath.Join(h.config.State, "visits", name)
}

func (h *host) tunnels() string { return filepath.Join(h.config.Run, "tunnels") }

func (h *host) must(err error) {
	h.Helper()
	if err != nil {
		h.Fatal(err)
	}
}

func (h *host) do(f func() error) {
	h.Helper()
	h.must(netns.Do(h.name, f))
}

func (h *host) ip(lines ...string) {
	h.Helper()
	for _, l := range lines {
		cmd := exec.Command("ip", strings.Fields("-n "+h.name+" "+l)...)
		if out, err := cmd.CombinedOutput(); err != nil {
			h.Fatalf("ip %s: %v: %s", l, err, out)
		}
	}
}

func (h *host) write(path string, value any) string {
	h.Helper()
	data, err := json.Marshal(value)
	h.must(err)
	path = filepath.Join(h.config.State, path)
	h.must(os.WriteFile(path, data, 0o600))
	return path
}

// up starts a tunnel.
func (h *host) up(name string, port uint16) tunnel.Config {
	h.Helper()
	private, public, err := tunnel.NewKey()
	h.must(err)
	c := tunnel.Config{Name: name, Local: netip.AddrPortFrom(netip.MustParseAddr("10.9.0.1"), port), Remote: netip.AddrPortFrom(netip.MustParseAddr("10.9.0.2"), port),
		PrivateKey: private, Dir: h.tunnels(), Lease: time.Now().Add(time.Minute)}
	c.PeerKey, err = tunnel.ParseKey(public)
	h.must(err)
	h.do(func() error { _, err := tunnel.Up(h.Context(), c); return err })
	return c
}

// inlet starts one for the guest of a directory, and returns its socket.
func (h *host) inlet(dir string) string {
	h.Helper()
	socket := filepath.Join(h.config.Run, "guests", dir, "inlet.sock")
	h.must(os.MkdirAll(filepath.Dir(socket), 0o700))
	h.must(inlet.Start(h.Context(), socket, filepath.Join(h.config.Run, "inlet.log")))
	h.Cleanup(func() { // nothing of a test outlives it
		found, _ := inlet.Found(filepath.Join(h.config.Run, "guests"))
		for _, p := range found {
			inlet.End(context.Background(), p)
		}
	})
	return socket
}

// away has the host lead a guest's address into a tunnel.
func (h *host) away(guest, addr, device string) {
	h.Helper()
	mac, _ := net.ParseMAC("52:54:00:00:01:0a")
	h.do(func() error {
		return netstate.Set(netstate.State{Guest: guest, Bridge: "br0", LAN: "lan0", Away: []netstate.Away{
			{Addr: netip.MustParseAddr(addr), MAC: mac, Tunnel: device, Active: true, Gateway: netip.MustParseAddr("10.9.0.2")}}})
	})
}

func (h *host) find() []Thing {
	h.Helper()
	var things []Thing
	h.do(func() (err error) { things, err = Find(h.Context(), h.config); return err })
	return things
}

func (h *host) clean() []Thing {
	h.Helper()
	var things []Thing
	h.do(func() (err error) { things, err = Clean(h.Context(), h.config); return err })
	return things
}

// names are kinds and last parts of the names of those that satisfy ok.
func names(things []Thing, ok func(Thing) bool) []string {
	var out []string
	for _, t := range things {
		if ok(t) {
			name := string(t.Kind) + " " + filepath.Base(t.Name)
			if t.Kind == Inlet {
				name += " of " + filepath.Base(filepath.Dir(t.Name))
			}
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out
}

func (h *host) want(what string, got []string, want ...string) {
	h.Helper()
	slices.Sort(want)
	if !slices.Equal(got, want) {
		h.Errorf("%s:\n got %s\nwant %s", what, strings.Join(got, ", "), strings.Join(want, ", "))
	}
}

func (h *host) journal(id string, record any) {
	h.Helper()
	j, err := journal.Create(filepath.Join(h.config.State, "journal"), id)
	h.must(err)
	if record != nil {
		h.must(j.Append(record, false))
	}
	h.must(j.Close())
}

// TestCleanLeavesWhatIsOwned: of each kind there is one that belongs to something and
// one that does not; the latter go, and nothing else.
func TestCleanLeavesWhatIsOwned(t *testing.T) {
	h := newHost(t)
	// A guest that is here, with a tap and a disk; and such that nobody has.
	owned := h.write("disks/web-3-disk0.raw", "data")
	h.write("disks/web-1-disk0.raw", "of an earlier stay")
	h.write("disks/gone-2-disk0.raw", "of a guest that left")
	h.write("disks/lone-1-disk0.raw", "perhaps the only copy")
	h.write("guests/web.json", care.Held{Description: config.Description{Name: "web", Memory: 256 << 20, NICs: []config.NIC{{MAC: "52:54:00:00:01:0a"}}, Disks: []vm.Disk{{ID: "disk0", Path: owned}}},
		Epoch: 3, Taps: []string{"gwt1a"}, Dir: filepath.Join(h.config.Run, "guests", "web-3")})
	h.write("history/m-00000008.json", record.Report{ID: "m-00000008", Guest: "web", Epoch: 2, From: "here", To: "there", Left: []string{"web-1-disk0.raw"},
		Outcome: migration.Completed, Requested: time.Now().Add(-time.Minute).UnixNano(), Ended: time.Now().UnixNano()})
	h.write("history/m-00000009.json", record.Report{ID: "m-00000009", Guest: "gone", Epoch: 3, From: "here", To: "there", Left: []string{"gone-2-disk0.raw"},
		Outcome: migration.Completed, Requested: time.Now().Add(-time.Minute).UnixNano(), Ended: time.Now().UnixNano()})
	for _, dir := range []string{"web-3", "old-1"} {
		h.must(os.MkdirAll(filepath.Join(h.config.Run, "guests", dir), 0o700))
	}
	for _, name := range []string{"gwt1a", "gwt2a"} {
		h.do(func() error {
			tap, err := netstate.OpenTap(name, 10, "br0", 1500)
			if err == nil {
				t.Cleanup(func() { tap.Close() })
			}
			return err
		})
	}
	// Inlets: of a guest that comes, and of one that is gone with its QEMU, its directory, its migration.
	h.inlet("mover-2")
	lost := h.inlet("old-1")
	torn := h.inlet("torn-4")
	h.must(os.RemoveAll(filepath.Dir(torn)))
	// Tunnels: leased, of a migration under way, of nothing, and of nothing without its files.
	leased := h.up("gwt-0000000a", 7001)
	h.up("gwm0-0000000b", 7002)
	h.up("gwt-0000000c", 7003)
	h.up("gwt-0000000d", 7004)
	files, err := filepath.Glob(filepath.Join(h.tunnels(), "gwt-0000000d*"))
	h.must(err)
	for _, f := range files {
		h.must(os.Remove(f))
	}
	h.write("detours.json", map[string]any{"m-0000000a": map[string]any{"id": "m-0000000a", "guest": "phoned", "leased": true, "tunnel": leased}})
	h.away("phoned", "10.9.0.20", "gwt-0000000a")
	h.away("forgotten", "10.9.0.21", "gwt-0000000c")
	h.ip("route add 10.9.0.30/32 dev br0 proto 0x67")
	// Journals.
	h.journal("m-0000000b", map[string]any{"side": "source", "plan": migration.Plan{ID: "m-0000000b", Guest: "mover", To: "there"}, "state": map[string]any{"course": "forward"}})
	h.keepMemory("gone.mem")
	h.must(os.Chtimes(h.keepMemory("older.mem"), time.Time{}, time.Now().Add(-48*time.Hour)))
	h.write("visits/stolen.mem", "memory that another key has sealed")
	h.must(os.WriteFile(filepath.Join(h.config.State, ".tmp-1"), nil, 0o600))
	h.must(os.Chtimes(filepath.Join(h.config.State, ".tmp-1"), time.Time{}, time.Now().Add(-time.Hour)))

	things := h.find()
	h.want("owned", names(things, func(t Thing) bool { return t.Owner != "" }),
		"guest mover-2", "inlet inlet.sock of mover-2", "disk web-3-disk0.raw", "guest web-3", "journal m-0000000b.journal", "kept memory gone.mem", "network state phoned", "tap gwt1a", "tunnel gwm0-0000000b", "tunnel gwt-0000000a",
		// while a migration is under way, what may be just being made is its own
		"stray entry 32 dev br0 table 254", "tap gwt2a")
	h.want("stays", names(things, func(t Thing) bool { return t.Stays != "" }), "disk lone-1-disk0.raw")
	left := []string{"disk gone-2-disk0.raw", "disk web-1-disk0.raw", "file .tmp-1", "guest old-1", "inlet inlet.sock of old-1", "inlet inlet.sock of torn-4", "kept memory older.mem", "kept memory stolen.mem", "network state forgotten", "tunnel gwt-0000000c", "tunnel gwt-0000000d"}
	h.want("left", names(things, Thing.Left), left...)
	h.want("removed", names(h.clean(), func(Thing) bool { return true }), left...)
	h.want("left after cleaning", names(h.find(), Thing.Left))
	if conn, err := net.Dial("unix", lost); err == nil {
		conn.Close()
		t.Error("an inlet that was ended answers")
	}

	// The migration has ended: what it had is left over.
	h.must(journal.Discard(filepath.Join(h.config.State, "journal"), "m-0000000b"))
	h.want("removed then", names(h.clean(), func(Thing) bool { return true }), "guest mover-2", "inlet inlet.sock of mover-2", "stray entry 32 dev br0 table 254", "tap gwt2a", "tunnel gwm0-0000000b")
	h.want("at the end", names(h.find(), func(Thing) bool { return true }),
		"disk lone-1-disk0.raw", "disk web-3-disk0.raw", "guest web-3", "kept memory gone.mem", "network state phoned", "tap gwt1a", "tunnel gwt-0000000a")
}

// TestUnreadableJournal: what a journal that cannot be read owns is not known, so
// nothing is called left over.
func TestUnreadableJournal(t *testing.T) {
	h := newHost(t)
	h.up("gwt-0000000e", 7005)
	h.journal("m-00000001", nil)
	dir := filepath.Join(h.config.State, "journal")
	h.must(os.WriteFile(filepath.Join(dir, "m-0000000e.journal"), []byte("not a record\nat all\n"), 0o600))
	h.want("left", names(h.find(), Thing.Left), "journal m-00000001.journal") // begun, and nothing done
	h.clean()
	things := h.find()
	h.want("there", names(things, func(Thing) bool { return true }), "journal m-0000000e.journal", "tunnel gwt-0000000e")
	for _, thing := range things {
		if thing.Stays == "" {
			t.Errorf("%s: want it left alone, with a reason", thing)
		}
	}
}

// TestUnreadableFiles: what cannot be read of guests or detours is listed, and hides nothing else that cannot; what it
// owns is not known, so nothing is called left over.
func TestUnreadableFiles(t *testing.T) {
	other, err := json.Marshal(care.Held{Description: config.Description{Name: "db", Memory: 256 << 20, NICs: []config.NIC{{MAC: "52:54:00:00:01:0a"}}}, Dir: "/run/godwit/guests/db-1"})
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct{ file, text, thing string }{
		"a guest cut off":             {"guests/web.json", "{", "guest web.json"},
		"nothing of a guest":          {"guests/web.json", "null", "guest web.json"},
		"a guest by no name":          {"guests/web.json", "{}", "guest web.json"},
		"another guest":               {"guests/web.json", string(other), "guest web.json"},
		"detours cut off":             {"detours.json", "{", "file detours.json"},
		"a detour that is none":       {"detours.json", `{"m-0000000e":null}`, "file detours.json"},
		"a detour of another id":      {"detours.json", `{"m-0000000e":{"id":"m-0000000d","guest":"web"}}`, "file detours.json"},
		"a detour of no guest's":      {"detours.json", `{"m-0000000e":{"id":"m-0000000e"}}`, "file detours.json"},
		"a detour as something later": {"detours.json", `{"version":9,"detours":[]}`, "file detours.json"},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHost(t)
			h.up("gwt-0000000e", 7005)
			h.must(os.WriteFile(filepath.Join(h.config.State, c.file), []byte(c.text), 0o600))
			h.clean()
			h.want(c.file, names(h.find(), func(t Thing) bool { return t.Stays != "" }), "tunnel gwt-0000000e", c.thing)
		})
	}
	t.Run("several", func(t *testing.T) {
		h := newHost(t)
		h.journal("m-0000000e", nil)
		h.must(os.WriteFile(filepath.Join(h.config.State, "journal", "m-0000000e.journal"), []byte("not a record\nat all\n"), 0o600))
		h.journal("m-0000000f", map[string]any{"side": "later", "plan": migration.Plan{ID: "m-0000000f", Guest: "web"}})
		h.must(os.WriteFile(filepath.Join(h.config.State, "guests/web.json"), []byte("{"), 0o600))
		h.must(os.WriteFile(filepath.Join(h.config.State, "detours.json"), []byte("{"), 0o600))
		h.clean()
		h.want("all", names(h.find(), func(t Thing) bool { return t.Stays != "" }), "journal m-0000000e.journal", "journal m-0000000f.journal", "guest web.json", "file detours.json")
	})
}

// TestTunnelWithoutAProcess: one that the kernel carries on belongs to its detour until its lease has passed, by which its
// process would have ended it.
func TestTunnelWithoutAProcess(t *testing.T) {
	h := newHost(t)
	h.ip("link set br0 mtu 1600")
	c := tunnel.Config{Name: "gwt-0000000a", Kind: tunnel.VXLAN, Local: netip.MustParseAddrPort("10.9.0.1:7001"), Remote: netip.MustParseAddrPort("10.9.0.2:7001"),
		Dir: h.tunnels(), Lease: time.Now().Add(time.Minute)}
	h.write("detours.json", map[string]any{"m-0000000a": map[string]any{"id": "m-0000000a", "guest": "web", "leased": true, "tunnel": c}})
	h.do(func() error {
		tun, err := tunnel.Up(h.Context(), c)
		if err != nil {
			return err
		}
		err = syscall.Kill(tun.PID, syscall.SIGKILL)
		for err == nil && !tunnel.Orphaned(h.Context(), c.Dir, c.Name) {
			time.Sleep(time.Millisecond)
		}
		return err
	})
	h.want("before its lease has passed", names(h.find(), Thing.Left))
	record := filepath.Join(h.tunnels(), "gwt-0000000a.json")
	data, err := os.ReadFile(record)
	h.must(err)
	var was tunnel.Status
	h.must(json.Unmarshal(data, &was))
	was.Lease = time.Now().Add(-time.Second)
	data, err = json.Marshal(was)
	h.must(err)
	h.must(os.WriteFile(record, data, 0o600))
	h.want("after that", names(h.find(), Thing.Left), "tunnel gwt-0000000a")
	h.want("removed", names(h.clean(), func(Thing) bool { return true }), "tunnel gwt-0000000a")
	h.want("in the end", names(h.find(), func(Thing) bool { return true }))
}
