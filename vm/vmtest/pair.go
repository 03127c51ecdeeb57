package vmtest

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"godwit/internal/need"
	"godwit/vm"
	"godwit/vm/qemu"
)

// Memory is that of a pair's guest, bytes.
const Memory = 64 << 20

// Pair is a guest in QEMU at its source, and the QEMU that waits for it. They end with T.
type Pair struct {
	T        *testing.T
	Dir      string // with a name short enough for sockets in it
	Src, Dst *qemu.Process

	waited int
}

// NewPair starts both, and returns when the guest has filled its area.
func NewPair(t *testing.T, guest Writer) *Pair {
	t.Helper()
	need.QEMU(t)
	dir, err := os.MkdirTemp("", "t-godwit-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	p := &Pair{T: t, Dir: dir}
	if err := os.WriteFile(p.image(), guest.Image(), 0o600); err != nil {
		t.Fatal(err)
	}
	p.Src = p.start(qemu.Spec{Dir: filepath.Join(dir, "src"), Kernel: p.image()})
	if err := AwaitPasses(p.Serial(p.Src), 1, 30*time.Second); err != nil {
		t.Fatal(err)
	}
	p.Wait()
	return p
}

func (p *Pair) image() string { return filepath.Join(p.Dir, "writer") }

func (p *Pair) start(spec qemu.Spec) *qemu.Process {
	p.T.Helper()
	spec.Name, spec.Memory, spec.Accel = "t-writer", Memory, "tcg"
	m, err := qemu.Start(p.T.Context(), spec)
	if err != nil {
		p.T.Fatal(err)
	}
	Guard(p.T, m.PID())
	p.T.Cleanup(func() { m.Kill() }) //nolint:errcheck // it may have ended
	return m
}

// Wait starts a new destination.
func (p *Pair) Wait() {
	p.T.Helper()
	p.waited++
	p.Dst = p.start(qemu.Spec{Dir: filepath.Join(p.Dir, fmt.Sprintf("dst%d", p.waited)), Kernel: p.image(), Incoming: true})
}

// Serial is what the guest of one of them writes, for Passes.
func (p *Pair) Serial(m *qemu.Process) string { return filepath.Join(m.Dir(), "serial.log") }

// Status fails the test where one of them is in another state.
func (p *Pair) Status(m *qemu.Process, want vm.Status) {
	p.T.Helper()
	got, err := m.Status(p.T.Context())
	if err != nil || got != want {
		p.T.Fatalf("status %s, %v; want %s", got, err, want)
	}
}
