package qemu

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"godwit/vm"
	"godwit/vm/qemu/qmp"
)

// fake is a QEMU of a version that can't be run here, or in a state that can't be made.
type fake struct {
	conn net.Conn

	mu     sync.Mutex
	log    []string                                            // commands, with arguments
	status string                                              // of the migration
	run    string                                              // of the guest
	deaf   bool                                                // answers nothing but out-of-band commands
	ram    string                                              // fields of query-migrate's ram
	busy   bool                                                // has not cleaned up
	over   bool                                                // a yank is refused: there is no migration any more
	dirty  string                                              // answer to query-dirty-rate
	net    string                                              // JSON: answer to `info network`
	why    string                                              // what it says of a migration, and of what it refuses
	mute   string                                              // what stands in commands that it does not answer; "": nothing
	first  func(command, args string) (answer string, ok bool) // is asked before all else; nil: nothing
}

func newFake(t *testing.T, version string) (*fake, *Process) {
	t.Helper()
	here, there := net.Pipe()
	f := &fake{conn: there, status: "none", run: "running"}
	go f.serve(version)
	client, err := qmp.New(t.Context(), here)
	if err != nil {
		t.Fatal(err)
	}
	p, err := watch(os.Getpid(), "", client)
	if err != nil {
		t.Fatal(err)
	}
	p.begin(nil)
	t.Cleanup(func() { p.Close() })
	return f, p
}

func quoted(s string) string {
	b, _ := json.Marshal(s) //nolint:errchkjson // a string
	return string(b)
}

// refused is the answer to a yank of what there is not.
const refused = `{"class": "DeviceNotFound", "desc": "Instance not found"}`

func (f *fake) serve(version string) {
	v := strings.Split(version, ".")
	fmt.Fprintf(f.conn, `{"QMP": {"version": {"qemu": {"major": %s, "minor": %s, "micro": %s}}, "capabilities": ["oob"]}}`+"\n", v[0], v[1], v[2])
	for lines := bufio.NewScanner(f.conn); lines.Scan(); {
		var req struct {
			Execute string          `json:"execute"`
			OOB     string          `json:"exec-oob"`
			Args    json.RawMessage `json:"arguments"`
			ID      int             `json:"id"`
		}
		if json.Unmarshal(lines.Bytes(), &req) != nil {
			return
		}
		if answer, ok := f.answer(req.Execute+req.OOB, string(req.Args), req.OOB != ""); ok {
			kind := "return"
			if answer == refused {
				kind = "error"
				if f.why != "" {
					answer = fmt.Sprintf(`{"class": "GenericError", "desc": %s}`, quoted(f.why))
				}
			}
			fmt.Fprintf(f.conn, `{%q: %s, "id": %d}`+"\n", kind, answer, req.ID)
		}
	}
}

func (f *fake) answer(command, args string, oob bool) (string, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.log = append(f.log, strings.TrimSpace(command+" "+args))
	if f.deaf && !oob || f.mute != "" && strings.Contains(args, f.mute) {
		return "", false
	}
	if f.first != nil {
		return f.first(command, args)
	}
	switch command {
	case "query-status":
		return fmt.Sprintf(`{"status": %s}`, quoted(f.run)), true
	case "query-migrate":
		return fmt.Sprintf(`{"status": %q, "error-desc": %s, "ram": {%s}}`, f.status, quoted(f.why), f.ram), true
	case "query-yank":
		if f.busy {
			f.busy = false
			return `[{"type": "migration"}]`, true
		}
		return "[]", true
	case "query-memory-size-summary":
		return `{"base-memory": 268435456}`, true
	case "query-dirty-rate":
		return f.dirty, true
	case "human-monitor-command":
		return f.net, true
	case "qom-list":
		return `[{"name": "card", "type": "child<virtio-net-pci>"}, {"name": "type", "type": "string"}]`, true
	case "qom-get":
		if strings.Contains(args, `"mac"`) {
			return `"52:54:00:00:01:0a"`, true
		}
		if strings.Contains(args, `"guest_announce"`) || strings.Contains(args, `"free-page-hint"`) || strings.Contains(args, `"share-rw"`) {
			return "false", true
		}
		return `"net0"`, true
	case "query-migrate-capabilities":
		return "[]", true
	case "migrate":
		f.status = "active"
	case "migrate-continue":
		f.status = "device"
	case "migrate_cancel":
		f.status, f.busy = "cancelled", true
	case "yank":
		f.deaf = false
		if f.over {
			return refused, true
		}
		f.status = "failed"
	case "stop":
		if f.run == "running" {
			f.run = "paused"
		}
	}
	return "{}", true
}

func (f *fake) set(change func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change()
}

// said waits until a command with these words has come, and returns its place.
func (f *fake) said(t *testing.T, words ...string) int {
	t.Helper()
	for begun := time.Now(); time.Since(begun) < 30*time.Second; time.Sleep(5 * time.Millisecond) {
		f.mu.Lock()
		at := slices.IndexFunc(f.log, func(line string) bool {
			return !slices.ContainsFunc(words, func(w string) bool { return !strings.Contains(line, w) })
		})
		f.mu.Unlock()
		if at >= 0 {
			return at
		}
	}
	t.Fatalf("no command %q in\n%s", words, strings.Join(f.log, "\n"))
	return 0
}

var held = vm.MigrateOptions{URI: "unix:/x", HoldSwitchover: true, MaxBandwidth: 1e6}

func TestOldQEMUIsHeldByLowBandwidth(t *testing.T) {
	f, p := newFake(t, "7.2.22")
	f.ram = `"remaining": 1000, "dirty-sync-count": 3, "page-size": 4096, "mbps": 100`
	if err := p.Migrate(t.Context(), held); err != nil {
		t.Fatal(err)
	}
	set := f.said(t, "migrate-set-parameters", `"downtime-limit":1`, `"max-bandwidth":1000000`)
	fence := f.said(t, "migrate-set-capabilities", `"pause-before-switchover","state":true`, `"return-path","state":true`)
	if start := f.said(t, "migrate {"); set > start || fence > start {
		t.Errorf("started before it was set up:\n%s", strings.Join(f.log, "\n"))
	}
	f.said(t, `migrate-set-parameters {"max-bandwidth":4096}`)
	for _, line := range f.log {
		if strings.Contains(line, "switchover-ack") {
			t.Errorf("7.2 doesn't know: %s", line)
		}
	}
	if err := p.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	f.set(func() { f.status = "pre-switchover" })
	if err := p.ReleaseSwitchover(t.Context()); err != nil {
		t.Fatal(err)
	}
	f.said(t, "migrate-set-parameters", `"downtime-limit":2000000`, `"max-bandwidth":1000000`)
	f.said(t, `migrate-continue {"state":"pre-switchover"}`)
}

// TestLooksAtOnceWhenReleased: a QEMU that writes to the paths itself is told to look for the last time before it sends
// all that it knows of, once its guest stands still and not before (lookWhenSent); one that does not stays as it was.
func TestLooksAtOnceWhenReleased(t *testing.T) {
	for _, looks := range []bool{false, true} {
		f, p := newFake(t, "10.0.2")
		opts := held
		heard := -1 // how much it had been told by then
		opts.LooksAtOnce, opts.Looks = looks, func() {
			f.mu.Lock()
			defer f.mu.Unlock()
			heard = len(f.log)
		}
		if err := p.Migrate(t.Context(), opts); err != nil {
			t.Fatal(err)
		}
		f.said(t, "migrate-set-parameters", `"avail-switchover-bandwidth":1000000`, `"downtime-limit":1,`)
		if err := p.Stop(t.Context()); err != nil {
			t.Fatal(err)
		}
		stopped := f.said(t, "stop")
		f.set(func() { f.status = "pre-switchover" })
		if err := p.ReleaseSwitchover(t.Context()); err != nil {
			t.Fatal(err)
		}
		goesOn := f.said(t, `migrate-continue {"state":"pre-switchover"}`)
		f.mu.Lock()
		at := slices.IndexFunc(f.log, func(line string) bool { return strings.Contains(line, `"downtime-limit":2000000`) })
		f.mu.Unlock()
		if told := at > stopped && at < goesOn; told != looks || !looks && at >= 0 {
			t.Errorf("looks at once: %v, told %d, stopped %d, goes on %d", looks, at, stopped, goesOn)
		}
		if looks && (heard <= at || heard > goesOn) || !looks && heard >= 0 {
			t.Errorf("looks at once: %v, told %d, said so at %d, goes on %d", looks, at, heard, goesOn)
		}
	}
}

// TestDestinationAcknowledgesWhenAsked: a QEMU that waits sends SWITCHOVER_ACK only where the source
// is held by that.
func TestDestinationAcknowledgesWhenAsked(t *testing.T) {
	for _, hold := range []bool{false, true} {
		f, p := newFake(t, "8.1.0")
		if err := p.PrepareIncoming(t.Context(), vm.MigrateOptions{URI: "unix:/x", HoldSwitchover: hold}); err != nil {
			t.Fatal(err)
		}
		f.said(t, "migrate-set-capabilities", fmt.Sprintf(`"switchover-ack","state":%v`, hold))
		f.said(t, "migrate-set-parameters", `"announce-rounds":1`) // not 5: its guest's first moments are its clients'; nor 0: see announceRounds
	}
}

func TestBusyGuestIsNotBraked(t *testing.T) {
	f, p := newFake(t, "7.2.22")
	f.ram = `"remaining": 1000, "dirty-sync-count": 3, "page-size": 4096, "mbps": 100, "dirty-pages-rate": 100000`
	if err := p.Migrate(t.Context(), held); err != nil {
		t.Fatal(err)
	}
	time.Sleep(4 * brakeLook)
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, line := range f.log {
		if strings.Contains(line, "4096") {
			t.Error("braked a guest that the downtime limit holds")
		}
	}
}

func TestStopRefusesQEMUsOwnStop(t *testing.T) {
	f, p := newFake(t, "7.2.22")
	f.first = func(command, _ string) (string, bool) {
		switch command {
		case "query-status":
			return `{"status": ` + quoted(f.run) + `}`, true
		case "query-migrate-capabilities":
			return `[{"capability": "pause-before-switchover", "state": true}]`, true
		case "stop": // it came first
			f.run = "finish-migrate"
		}
		return "{}", true
	}
	if err := p.Stop(t.Context()); err == nil || err.Error() != "stop guest: it is finish-migrate, not paused" {
		t.Errorf("error %v", err)
	}
}

func TestCancelWaitsForCleaningUp(t *testing.T) {
	f, p := newFake(t, "10.0.2")
	f.status = "active"
	if err := p.CancelMigration(t.Context()); err != nil {
		t.Fatal(err)
	}
	if f.said(t, "migrate_cancel") > f.said(t, "query-yank") || f.busy {
		t.Error("did not wait until QEMU had cleaned up")
	}
}

func TestCancelYanksADeafQEMU(t *testing.T) {
	f, p := newFake(t, "10.0.2")
	f.status, f.deaf = "active", true
	if err := p.CancelMigration(t.Context()); err != nil { // and not when no more is waited for
		t.Fatal(err)
	}
	f.said(t, `yank {"instances":[{"type":"migration"}]}`)
}

// TestCancelThatWasHeardAfterAll: a QEMU whose answer was not seen in time, as this host stood still, has cancelled,
// and there is nothing to yank any more.
func TestCancelThatWasHeardAfterAll(t *testing.T) {
	f, p := newFake(t, "10.0.2")
	f.status, f.deaf, f.over = "cancelled", true, true
	if err := p.CancelMigration(t.Context()); err != nil {
		t.Error(err)
	}
	f.said(t, "yank")
}

func TestParameters(t *testing.T) {
	for name, c := range map[string]struct {
		opts vm.MigrateOptions
		want string // JSON, or the error
	}{
		"plain":    {vm.MigrateOptions{}, `{"downtime-limit":300,"max-bandwidth":1099511627776}`},
		"multifd":  {vm.MigrateOptions{Multifd: true, Channels: 4, Compression: "zstd", CompressionLevel: 3, MaxBandwidth: 5}, `{"downtime-limit":300,"max-bandwidth":5,"multifd-channels":4,"multifd-compression":"zstd","multifd-zstd-level":3}`},
		"zstd":     {vm.MigrateOptions{Compression: "zstd"}, "compression zstd: needs multifd"},
		"both":     {vm.MigrateOptions{Multifd: true, Xbzrle: true}, "xbzrle and multifd: only one of them at a time"},
		"lzma":     {vm.MigrateOptions{Multifd: true, Compression: "lzma"}, `compression "lzma": not zstd, zlib or none`},
		"channels": {vm.MigrateOptions{Multifd: true, Channels: 256}, "256 multifd channels: not 1 to 255"},
		"downtime": {vm.MigrateOptions{DowntimeLimit: time.Hour}, "downtime limit 1h0m0s: not 1ms to 33m20s"},
		"negative": {vm.MigrateOptions{MaxBandwidth: -1}, "bandwidth -1: negative"},
	} {
		t.Run(name, func(t *testing.T) {
			params, err := parameters(c.opts)
			got := fmt.Sprint(err)
			if err == nil {
				text, _ := json.Marshal(params)
				got = string(text)
			}
			if got != c.want {
				t.Errorf("got %s, want %s", got, c.want)
			}
		})
	}
}

func TestEventsNeverBlockReplies(t *testing.T) {
	f, p := newFake(t, "10.0.2")
	slow := p.Events(t.Context())
	for i := range 1000 {
		fmt.Fprintf(f.conn, `{"event": "E%d", "timestamp": {"seconds": 7, "microseconds": 5}}`+"\n", i)
	}
	if _, err := p.Status(t.Context()); err != nil {
		t.Fatal(err)
	}
	var last vm.Event
	for len(slow) > 0 {
		last = <-slow
	}
	if last.Name != "E999" || !last.At.Equal(time.Unix(7, 5000)) {
		t.Errorf("the latest event is lost: %+v", last)
	}
	ctx, cancel := context.WithCancel(t.Context())
	events := p.Events(ctx)
	cancel()
	if _, ok := <-events; ok {
		t.Error("channel is open after its context's end")
	}
}

func TestProbeProcessor(t *testing.T) {
	info := []byte("processor\t: 0\nmodel name\t: X 1\ncpu family\t: 6\nmodel\t\t: 7\nstepping\t: 8\nflags\t\t: sse vmx\n\nprocessor\t: 1\nflags\t\t: other\n")
	if !virtualises(info) || virtualises([]byte(strings.ReplaceAll(string(info), "vmx", "vmxx"))) {
		t.Error("vmx flag not told from others")
	}
	if got := processor(info); got != "X 1 (family 6 model 7 stepping 8)" {
		t.Errorf("processor %q", got)
	}
	v, err := parseVersion([]byte("QEMU emulator version 10.0.2 (Debian 1:10)\n"))
	if err != nil || v != (qmp.Version{Major: 10, Micro: 2}) {
		t.Errorf("version %v, %v", v, err)
	}
}

func TestComplaintWithoutTimeAndName(t *testing.T) {
	log := t.TempDir() + "/log"
	text := asides + "2026-01-02T03:04:05.123456Z qemu-system-x86_64: warning: old\n2026-01-02T03:04:05.123457Z qemu-system-x86_64: -cpu x: no such model\nmore\n"
	if err := os.WriteFile(log, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := firstComplaint(log); got != "-cpu x: no such model" {
		t.Errorf("first complaint %q", got)
	}
	if got := lastLine(log); got != "more" {
		t.Errorf("last line %q", got)
	}
}
