package disks

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"godwit/migration"
	"godwit/policy"
	"godwit/transfer"
	"godwit/transfer/nbd"
	"godwit/vm"
)

// mirrored is a QEMU with mirrors that copy and do not follow.
type mirrored struct {
	vm.Blocks
	disks   []string
	follows string // a disk whose mirror does follow
	done    int64
	refuses map[string]int // by disk: how often it does not let writes wait yet; below 0: it never does
	blocked []string
}

func (m *mirrored) Mirrors(context.Context) (all []vm.MirrorState, err error) {
	m.done += 1 << 20
	for _, d := range m.disks {
		state := vm.MirrorState{Disk: d, Done: m.done, Remaining: 64 << 20}
		if d == m.follows {
			state.Ready, state.Remaining = true, 0
		}
		all = append(all, state)
	}
	return all, nil
}

func (m *mirrored) BlockWrites(_ context.Context, disk string) error {
	if m.refuses[disk] != 0 {
		m.refuses[disk]--
		return errors.New("The command block-job-change has not been found")
	}
	m.blocked = append(m.blocked, disk)
	return nil
}

// TestWritesThatOutrunTheCopy: the writes of each disk that does not follow wait for the copy as soon as QEMU lets
// them, and are told to once. Where it never does, as before 8.2, the migration ends with the reason, and not when a
// person has had enough.
func TestWritesThatOutrunTheCopy(t *testing.T) {
	const patience = 3 * time.Second
	for name, c := range map[string]struct {
		refuses map[string]int
		follows string
		ready   bool
		blocked string
		ends    bool
	}{
		"it lets them":                   {nil, "", false, "a b", false},
		"of one not at once":             {map[string]int{"a": 2}, "", false, "b a", false},
		"it cannot":                      {map[string]int{"a": -1, "b": -1}, "", false, "", true},
		"it cannot for one of those":     {map[string]int{"b": -1}, "", false, "a", true},
		"it cannot, and all were copied": {map[string]int{"a": -1, "b": -1}, "", true, "", false},
		"one of them follows":            {nil, "b", false, "a", false},
		"it cannot for that one":         {map[string]int{"a": -1}, "a", false, "b", false},
	} {
		fake := &mirrored{disks: []string{"a", "b"}, follows: c.follows, refuses: c.refuses}
		s := &Source{Config: Config{Plan: migration.Plan{Guest: "web"}, Disks: make([]vm.Disk, 2), Blocks: fake, Patience: patience, Note: func(string) {}}}
		states, err := fake.Mirrors(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		begun := time.Now()
		for at := begun; err == nil && at.Before(begun.Add(10*patience)); at = at.Add(mirrorLook) {
			err = s.blockWrites(t.Context(), states, policy.SeedLook{At: at, Ready: c.ready})
		}
		if got := strings.Join(fake.blocked, " "); got != c.blocked || (err != nil) != c.ends {
			t.Errorf("%s: writes to %q wait, %v", name, got, err)
		}
		if c.ends && (!strings.Contains(err.Error(), "8.2") || !strings.Contains(err.Error(), "lower what it writes")) {
			t.Errorf("%s: %v", name, err)
		}
		if !c.ends && !s.refused.IsZero() {
			t.Errorf("%s: still refused", name)
		}
	}
}

// TestDiskIsLookedThroughFirst: a mirror that does not know yet what there is to copy is told from one that has copied all.
func TestDiskIsLookedThroughFirst(t *testing.T) {
	begun, ready, early := vm.MirrorState{Done: 1, Remaining: 8}, vm.MirrorState{Ready: true}, vm.MirrorState{}
	for _, c := range []struct {
		states []vm.MirrorState
		want   policy.SeedLook
	}{
		{[]vm.MirrorState{begun, begun}, policy.SeedLook{Done: 2, Remaining: 16}},
		{[]vm.MirrorState{begun, early}, policy.SeedLook{Done: 1, Remaining: 8, Early: true}},
		{[]vm.MirrorState{early, begun}, policy.SeedLook{Done: 1, Remaining: 8, Early: true}},
		{[]vm.MirrorState{begun, ready}, policy.SeedLook{Done: 1, Remaining: 8}},
		{[]vm.MirrorState{ready, ready}, policy.SeedLook{Ready: true}},
	} {
		if got := seedLook(time.Time{}, c.states); got != c.want {
			t.Errorf("%+v: %+v, want %+v", c.states, got, c.want)
		}
	}
}

// slowToBegin is a QEMU that waits with a mirror until what another has under way is there, or for so long.
type slowToBegin struct {
	vm.Blocks
	takes time.Duration
	fails error
}

func (s slowToBegin) StartMirror(ctx context.Context, _ vm.Mirror) error {
	select {
	case <-time.After(s.takes):
		return s.fails
	case <-ctx.Done():
		return ctx.Err()
	}
}

// TestMirrorThatDoesNotBegin: a mirror that waits for what others have under way is waited for with patience, while
// nothing of that moves.
func TestMirrorThatDoesNotBegin(t *testing.T) {
	forward, err := transfer.ListenNBD(t.Context(), filepath.Join(t.TempDir(), "out.sock"), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer forward.Close()
	for name, c := range map[string]struct {
		blocks slowToBegin
		code   migration.Code
		says   string
	}{
		"at once":      {slowToBegin{takes: 0}, "", ""},
		"after a time": {slowToBegin{takes: 300 * time.Millisecond}, "", ""},
		"never":        {slowToBegin{takes: time.Hour}, migration.CodePath, "see whether the paths work"},
		"it cannot":    {slowToBegin{fails: errors.New("no such disk")}, migration.CodeHypervisor, "no such disk"},
	} {
		s := &Source{Config: Config{Plan: migration.Plan{Guest: "web", To: "oslo"}, Blocks: c.blocks, Patience: time.Second}, forward: forward}
		synctest.Test(t, func(t *testing.T) {
			err := s.beginMirror(t.Context(), vm.Mirror{Disk: "a"})
			var problem *migration.Problem
			if errors.As(err, &problem) != (c.code != "") || problem != nil && (problem.Code != c.code || !strings.Contains(problem.Text, c.says)) {
				t.Errorf("%s: %v, want %s: %s", name, err, c.code, c.says)
			}
		})
	}
}

// TestDiskFullThere: a copy that found no room is told as that, by QEMU's word of it.
func TestDiskFullThere(t *testing.T) {
	forward, err := transfer.ListenNBD(t.Context(), filepath.Join(t.TempDir(), "out.sock"), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer forward.Close()
	s := &Source{Config: Config{Plan: migration.Plan{Guest: "web", To: "oslo"}}, forward: forward}
	for why, code := range map[string]migration.Code{"No space left on device": migration.CodeCapacity, "Input/output error": migration.CodeHypervisor} {
		var problem *migration.Problem
		if err := s.broke("disk0", why); !errors.As(err, &problem) || problem.Code != code || !strings.Contains(problem.Text, "the copy of disk0 to oslo broke: "+why) {
			t.Errorf("%s: %v, want code %s", why, err, code)
		}
	}
}

// outOfSync is a QEMU whose mirrors do not get in sync any more.
type outOfSync struct{ vm.Blocks }

func (outOfSync) FinishMirrors(context.Context) error { return errors.New("Connection timed out") }

// deadWay is a disk's way on which nobody answers: its end takes a while.
type deadWay struct {
	net.Conn
	said <-chan struct{} // closed when its farewell was given up
}

func (d deadWay) Close() error {
	<-d.said
	return d.Conn.Close()
}

// TestGuestDoesNotStandStillForFarewells: where disks do not get in sync their ways are taken from QEMU at once, and the
// guest, which stands still, does not wait for what is said on them last.
func TestGuestDoesNotStandStillForFarewells(t *testing.T) {
	here, there := net.Pipe()
	defer there.Close()
	socket, said := filepath.Join(t.TempDir(), "out.sock"), make(chan struct{})
	disk := transfer.Disk{Export: nbd.Export{Size: 4096, Flags: 1, Structured: true}, Conn: deadWay{here, said}}
	forward, err := transfer.ListenNBD(t.Context(), socket, map[string]transfer.Disk{"a": disk})
	if err != nil {
		t.Fatal(err)
	}
	client, err := net.Dial("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	if _, err := nbd.Ask(client, "a"); err != nil {
		t.Fatal(err)
	}
	var farewells sync.WaitGroup
	s := &Source{Config: Config{Plan: migration.Plan{Guest: "web", To: "oslo"}, Blocks: outOfSync{}, Farewells: &farewells}, forward: forward}
	defer farewells.Wait()
	defer close(said)
	finished := make(chan error, 1)
	go func() { finished <- s.Finish(t.Context()) }()
	select {
	case err := <-finished:
		if err == nil {
			t.Error("they are in sync")
		}
	case <-time.After(5 * time.Second):
		t.Error("the guest waits for a farewell")
	}
	client.SetReadDeadline(time.Now().Add(5 * time.Second)) //nolint:errcheck // a unix socket's
	if _, err := client.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("QEMU still has the way: %v", err)
	}
}

// TestDisksBeginInTurn: the mirror of each disk is begun, and none after one that does not.
func TestDisksBeginInTurn(t *testing.T) {
	for fails, want := range map[string]string{"": "a b c", "b": "a b"} {
		begun := &beginsInTurn{fails: fails}
		s := &Source{Config: Config{Plan: migration.Plan{Guest: "web", To: "oslo"}, Blocks: begun, Disks: []vm.Disk{{ID: "a"}, {ID: "b"}, {ID: "c"}}, Socket: "out.sock", Patience: time.Minute}}
		forward, err := transfer.ListenNBD(t.Context(), filepath.Join(t.TempDir(), "out.sock"), nil)
		if err != nil {
			t.Fatal(err)
		}
		defer forward.Close()
		s.forward = forward
		if err := s.Begin(t.Context()); (err != nil) != (fails != "") || strings.Join(begun.disks, " ") != want {
			t.Errorf("%q fails: began %v, %v", fails, begun.disks, err)
		}
	}
}

// beginsInTurn is a QEMU that begins mirrors, but for one.
type beginsInTurn struct {
	vm.Blocks
	fails string
	disks []string
}

func (b *beginsInTurn) StartMirror(_ context.Context, m vm.Mirror) error {
	b.disks = append(b.disks, m.Disk)
	if m.Disk == b.fails || m.Socket != "out.sock" {
		return errors.New("no such disk")
	}
	return nil
}
