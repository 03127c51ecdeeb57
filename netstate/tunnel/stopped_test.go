package tunnel

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
	"testing"
	"time"

	"godwit/internal/need"
	"godwit/netstate/internal/nettest"
	"godwit/netstate/netns"
)

// TestStoppedEnds: the process of a tunnel that is taken down ends, though it was stopped, and with its socket gone,
// too: or it would take another tunnel of its name down when it goes on.
func TestStoppedEnds(t *testing.T) {
	for what, end := range map[string]func(Config) error{
		"taken down": func(c Config) error { return Down(t.Context(), c.Dir, c.Name) },
		"astray": func(c Config) error {
			return errors.Join(os.Remove(c.socket()), EndAstray(t.Context(), c.Name), Down(t.Context(), c.Dir, c.Name))
		},
	} {
		for _, kind := range []string{WireGuard, VXLAN} {
			t.Run(kind+" "+what, func(t *testing.T) {
				t.Parallel() // each waits for seconds until one is taken to be silent
				n := pathNet(t)
				cfg := ends(t, kind, "10.9.1.2:51820", "10.9.2.2:51820")[0]
				cfg.MTU = 1300
				tun := up(t, n.Net, "a", cfg)
				need.Stop(t, tun.PID)
				n.Do("a", func() error { return end(cfg) })
				nettest.Eventually(t, "its process is gone", 5*time.Second, func() bool { return syscall.Kill(tun.PID, 0) != nil })
				again := up(t, n.Net, "a", cfg)
				if again.PID == tun.PID {
					t.Error("it is the same process")
				}
				n.Do("a", func() error { return Down(t.Context(), cfg.Dir, cfg.Name) })
			})
		}
	}
}

// TestStoppedGoesOn: a tunnel whose process was stopped carries packets again when it is woken; one that runs, and one
// that there is none of, is none that was stopped.
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
	n.verify(t, a)
	if wake(cfg[0].Name) {
		t.Error("it is stopped still")
	}
}

// TestKilledAsItBegan: a process that does not end as it is given up, because it does not run, leaves nothing either.
func TestKilledAsItBegan(t *testing.T) {
	n := pathNet(t)
	for try := range 50 { // it may be ready before it is stopped
		cfg := ends(t, VXLAN, "10.9.1.2:51820", "10.9.2.2:51820")[0]
		cfg.MTU, cfg.Name = 1300, fmt.Sprintf("gwt%d", try)
		ctx, cancel := context.WithCancel(t.Context())
		came := make(chan error, 1)
		go func() {
			came <- netns.Do(n.Name("a"), func() error { _, err := Up(ctx, cfg); return err })
		}()
		made := false
		for p := need.Patient(10 * time.Second); !made && !p.Over(); {
			_, err := os.Lstat(cfg.socket())
			made = err == nil
		}
		var all []Status
		n.Do("a", func() (err error) { all, err = keepers(); return err })
		for _, s := range all {
			if s.Name == cfg.Name {
				need.Stop(t, s.PID) // one that is only told to stop may answer yet that it ends
			}
		}
		cancel()
		up := <-came
		if _, err := os.Lstat(cfg.record()); up == nil || err == nil { // it had said that it is ready
			n.Do("a", func() error { return Down(t.Context(), cfg.Dir, cfg.Name) })
			continue
		}
		left, err := os.ReadDir(cfg.Dir)
		if err != nil || len(left) > 0 || exists(n.Net, cfg.Name) {
			t.Errorf("left: %v, %v, a device: %v", left, err, exists(n.Net, cfg.Name))
		}
		return
	}
	t.Error("each was ready too soon")
}

// TestUpBesideOneThatIsStopped: a tunnel that does not answer for a while keeps its socket and its log.
func TestUpBesideOneThatIsStopped(t *testing.T) {
	n := pathNet(t)
	cfg := ends(t, WireGuard, "10.9.1.2:51820", "10.9.2.2:51820")[0]
	tun := up(t, n.Net, "a", cfg)
	need.Stop(t, tun.PID)
	err := netns.Do(n.Name("a"), func() error { _, err := Up(t.Context(), cfg); return err })
	if err := syscall.Kill(tun.PID, syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	if err == nil {
		t.Error("a second one came up")
	}
	again, err := Attach(t.Context(), cfg.Dir, cfg.Name)
	if err != nil || again.PID != tun.PID {
		t.Errorf("%+v, %v", again, err)
	}
	if _, err := os.Stat(cfg.log()); err != nil {
		t.Error(err)
	}
}
