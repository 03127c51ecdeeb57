package qemu_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"godwit/internal/need"
	"godwit/vm"
	"godwit/vm/qemu"
)

// waiting is a command that starts a machine without a guest, waiting for one.
func waiting(t *testing.T) qemu.Command {
	t.Helper()
	need.QEMU(t)
	dir := t.TempDir()
	c := qemu.Command{Dir: dir, QMP: filepath.Join(dir, "qmp.sock"), Guest: filepath.Join(dir, "guest.sock")}
	c.Words = []string{
		qemu.Program, "-nodefaults", "-display", "none", "-machine", "q35", "-accel", "tcg", "-m", "32",
		"-qmp", "unix:" + c.QMP + ",server=on,wait=off", "-S", "-incoming", "defer",
		"-device", "virtio-net-pci,mac=52:54:00:00:01:0a,romfile=", "-device", "virtio-net-pci,id=second,mac=52:54:00:00:01:0b,romfile=",
	}
	return c
}

func TestStartCommandWaits(t *testing.T) {
	for name, wrap := range map[string][]string{"plain": nil, "by a shell": {"sh", "-c", `"$@"; true`, "sh"}} {
		t.Run(name, func(t *testing.T) {
			c := waiting(t)
			c.Words = append(slices.Clone(wrap), c.Words...)
			p, err := qemu.StartCommand(t.Context(), c)
			if err != nil {
				t.Fatal(err)
			}
			defer p.Kill()
			status(t, p, vm.Incoming)
			if p.GuestChannel() != c.Guest {
				t.Errorf("guest channel %s", p.GuestChannel())
			}
			cards, err := p.Cards(t.Context())
			if err != nil || len(cards) != 2 || cards[0].MAC == cards[1].MAC || !strings.HasPrefix(cards[0].MAC, "52:54:00:00:01:0") {
				t.Errorf("cards %+v, %v", cards, err)
			}
			if err := p.Close(); err != nil {
				t.Fatal(err)
			}
			again, err := qemu.AttachSocket(t.Context(), c.QMP, 0, c.Guest)
			if err != nil || again.PID() != p.PID() {
				t.Fatalf("found again: %v", err)
			}
			if err := again.Quit(t.Context()); err != nil {
				t.Error(err)
			}
			if _, err := qemu.AttachSocket(t.Context(), c.QMP, 0, c.Guest); !errors.Is(err, qemu.ErrGone) {
				t.Errorf("after its end: %v, want ErrGone", err)
			}
		})
	}
}

func TestStartCommandRefuses(t *testing.T) {
	without := func(words ...string) func(*qemu.Command) {
		return func(c *qemu.Command) {
			c.Words = slices.DeleteFunc(c.Words, func(w string) bool { return slices.Contains(words, w) })
		}
	}
	for name, c := range map[string]struct {
		spoil func(*qemu.Command)
		want  string
	}{
		"runs":           {without("-S", "-incoming", "defer"), "started it as running; it must wait"},
		"paused only":    {without("-incoming", "defer"), "started it as prelaunch"},
		"would run":      {without("-S"), "add -S"},
		"no program":     {func(c *qemu.Command) { c.Words[0] = "no-such-program" }, "not found"},
		"ends":           {func(c *qemu.Command) { c.Words = []string{"true"} }, "its command ended (exit status 0) and no QEMU listens on"},
		"complains":      {func(c *qemu.Command) { c.Words = append(c.Words, "-machine", "none-such") }, "none-such"},
		"no QEMU, waits": {func(c *qemu.Command) { c.Words = []string{"sleep", "1000"} }, "no QEMU answers"},
	} {
		t.Run(name, func(t *testing.T) {
			command := waiting(t)
			c.spoil(&command)
			patience := time.Minute
			if name == "no QEMU, waits" { // it ends by nothing else
				patience = time.Second
			}
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			_, err := qemu.StartCommand(ctx, command)
			if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n") {
				t.Errorf("%v: want one line with %q", err, c.want)
			}
			if _, err := qemu.AttachSocket(t.Context(), command.QMP, 0, ""); !errors.Is(err, qemu.ErrGone) {
				t.Errorf("a QEMU is left: %v", err)
			}
			if _, err := os.Stat(command.Dir); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestOnlyADestinationIsToldOfPostcopy(t *testing.T) {
	err := new(qemu.Process).Migrate(t.Context(), vm.MigrateOptions{URI: "unix:/nowhere", Postcopy: true})
	if err == nil || !strings.Contains(err.Error(), "only the destination") {
		t.Error(err)
	}
}

// TestFactsCountPluggedMemory: what was plugged in is sent with the rest, and needs room as it.
func TestFactsCountPluggedMemory(t *testing.T) {
	c := waiting(t)
	c.Words[slices.Index(c.Words, "32")] = "32M,slots=1,maxmem=1G"
	c.Words = append(c.Words, "-object", "memory-backend-ram,id=more,size=128M", "-device", "pc-dimm,memdev=more")
	p, err := qemu.StartCommand(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Kill()
	f, err := p.Facts(t.Context())
	if err != nil || f.Base != 32<<20 || f.Memory != 160<<20 || f.PageSize != 4096 {
		t.Errorf("%d bytes, %d at its start, pages of %d, %v", f.Memory, f.Base, f.PageSize, err)
	}
}

// TestFactsTellOfHints: pages that a guest says are free are never sent.
func TestFactsTellOfHints(t *testing.T) {
	for _, hints := range []string{"on", "off"} {
		c := waiting(t)
		c.Words = append(c.Words, "-object", "iothread,id=hints", "-device", "virtio-balloon-pci,iothread=hints,free-page-hint="+hints)
		p, err := qemu.StartCommand(t.Context(), c)
		if err != nil {
			t.Fatal(err)
		}
		defer p.Kill()
		if f, err := p.Facts(t.Context()); err != nil || f.Hints != (hints == "on") {
			t.Errorf("free-page-hint=%s: %v, %v", hints, f.Hints, err)
		}
	}
}
