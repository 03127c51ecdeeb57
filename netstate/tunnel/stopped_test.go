package tunnel

import (
	"context"
	"errors"
	"os"
	"syscall"
	"testing"
	"time"

	"godwit/internal/need"
	"godwit/netstate/internal/nettest"
)

// TestStoppedEnds: the process of a tunnel that is taken down ends, though it was stopped, and with its socket gone, too:
// or it would take another tunnel of its name down when it goes on.
func TestStoppedEnds(t *testing.T) {
	n := pathNet(t)
	for what, end := range map[string]func(Config) error{
		"taken down": func(c Config) error { return Down(t.Context(), c.Dir, c.Name) },
		"astray": func(c Config) error {
			return errors.Join(os.Remove(c.socket()), EndAstray(t.Context(), c.Dir, c.Name), Down(t.Context(), c.Dir, c.Name))
		},
	} {
		for _, kind := range []string{WireGuard, VXLAN} {
			cfg := ends(t, kind, "10.9.1.2:51820", "10.9.2.2:51820")[0]
			cfg.MTU = 1300
			tun := up(t, n.Net, "a", cfg)
			need.Stop(t, tun.PID)
			n.Do("a", func() error { return end(cfg) })
			nettest.Eventually(t, kind+" "+what+": its process is gone", time.Second, func() bool { return syscall.Kill(tun.PID, 0) != nil })
			again := up(t, n.Net, "a", cfg)
			if again.PID == tun.PID {
				t.Errorf("%s %s: it is the same process", kind, what)
			}
			n.Do("a", func() error { return Down(t.Context(), cfg.Dir, cfg.Name) })
		}
	}
}

// TestStoppedGoesOn: a tunnel whose process was stopped carries packets again when it is woken; one that runs, and one that there is
// none of, is none that was stopped.
func TestStoppedGoesOn(t *testing.T) {
	n := pathNet(t)
	cfg := ends(t, WireGuard, "10.9.1.2:51820", "10.9.2.2:51820")
	a, _ := up(t, n.Net, "a", cfg[0]), up(t, n.Net, "b", cfg[1])
	wake := func(name string) (woken bool) {
		n.Do("a", func() (err error) { woken, err = Wake(t.Context(), cfg[0].Dir, name); return err })
		return woken
	}
	if wake(cfg[0].Name) || wake("gwt9") {
		t.Error("one that was not stopped was woken")
	}
	need.Stop(t, a.PID)
	if !wake(cfg[0].Name) {
		t.Error("it was not found stopped")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 8*time.Second)
	defer cancel()
	n.Do("a", func() error { _, err := a.Verify(ctx); return err })
	if wake(cfg[0].Name) {
		t.Error("it is stopped still")
	}
}
