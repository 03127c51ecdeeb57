package transfer_test

import (
	"testing"
	"time"

	"godwit/vm"
	"godwit/vm/qemu"
	"godwit/vm/vmtest"
)

// TestPageWrittenWhilePending: a guest writes one page all the time, which QEMU has seen dirty
// and not sent yet. Its last version arrives. (A QEMU that looks at which pages are dirty
// while some are pending clears their marks, and where no other page is marked leaves the
// translated code that writes them unwatched: TCG, physical_memory_sync_dirty_bitmap.)
func TestPageWrittenWhilePending(t *testing.T) {
	p := &pair{vmtest.NewPair(t, vmtest.Writer{Start: 24 << 20, Size: 4096})}
	opts := vm.MigrateOptions{HoldSwitchover: true, MaxBandwidth: 20e3, DowntimeLimit: 1000 * time.Second}
	l := p.forward(&opts)
	if err := p.Src.Migrate(t.Context(), opts); err != nil {
		t.Fatal(err)
	}
	for until := time.Now().Add(30 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		progress, err := p.Src.Progress(t.Context())
		if err != nil || time.Now().After(until) {
			t.Fatalf("%+v, %v", progress, err)
		}
		if progress.Rounds > 1 && progress.Total-progress.Remaining > 28<<20 {
			t.Logf("%+v", progress)
			break
		}
	}
	time.Sleep(500 * time.Millisecond)
	if err := p.Src.SetBandwidth(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	if err := p.Src.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	go p.Src.ReleaseSwitchover(t.Context()) //nolint:errcheck // its end is waited for
	l.src.AllowSwitchover()
	if _, err := p.Dst.AwaitMigration(t.Context()); err != nil {
		t.Fatal(err)
	}
	a, b := p.sums(p.Src), p.sums(p.Dst)
	if d := b.Compare(a); d.Count != 0 || d.Pages < vmtest.Memory/qemu.PageSize {
		t.Errorf("compared: %+v", d)
	}
}

func (p *pair) sums(m *qemu.Process) qemu.Sums {
	p.T.Helper()
	at, err := m.Memory(p.T.Context())
	if err != nil {
		p.T.Fatal(err)
	}
	sums, err := at.Sums(p.T.Context(), false)
	if err != nil {
		p.T.Fatal(err)
	}
	return sums
}
