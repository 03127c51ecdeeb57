package tunnel

import (
	"context"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"godwit/internal/child"
	"godwit/internal/clock"
	"godwit/netstate/internal/nettest"
	"godwit/netstate/netns"
)

func TestMain(m *testing.M) {
	child.Dispatch()
	os.Exit(m.Run())
}

// TestEnds: what ends a tunnel, and that nothing is left then.
func TestEnds(t *testing.T) {
	for _, kind := range []string{WireGuard, VXLAN} {
		for _, c := range []struct {
			name string
			end  func(*nettest.Net, *Tunnel) error
		}{
			{"told", func(n *nettest.Net, tun *Tunnel) error {
				return netns.Do(n.Name("a"), func() error { return Down(t.Context(), tun.dir, tun.Name) })
			}},
			{"its lease", func(_ *nettest.Net, tun *Tunnel) error {
				return tun.Extend(t.Context(), time.Now().Add(200*time.Millisecond))
			}},
			{"its device deleted", func(n *nettest.Net, tun *Tunnel) error {
				n.IP("a", "link del "+tun.Name)
				return nil
			}},
			{"SIGTERM", func(_ *nettest.Net, tun *Tunnel) error {
				return exec.Command("kill", strconv.Itoa(tun.PID)).Run()
			}},
		} {
			t.Run(kind+" by "+c.name, func(t *testing.T) {
				n := pathNet(t)
				tun := up(t, n.Net, "a", ends(t, kind, "10.9.1.2:4789", "10.9.2.2:4789")[0])
				if err := c.end(n.Net, tun); err != nil {
					t.Fatal(err)
				}
				nettest.Eventually(t, "process and device gone", 3*time.Second, func() bool {
					_, err := os.Stat("/proc/" + strconv.Itoa(tun.PID))
					_, link := n.Try("a", "ip", "link", "show", tun.Name)
					return err != nil && link != nil
				})
				left, _ := filepath.Glob(filepath.Join(tun.dir, "*"))
				for _, f := range left {
					if !strings.HasSuffix(f, ".log") {
						t.Errorf("left: %s", f)
					}
				}
			})
		}
	}
}

// TestEndsThoughTheClockWasSetBack: a tunnel that nobody keeps lives for no longer than it was told to, though its
// host's clock was ahead then and was set right since.
func TestEndsThoughTheClockWasSetBack(t *testing.T) {
	host := filepath.Join(t.TempDir(), "clock")
	t.Setenv(clock.Variable, host)
	n := pathNet(t)
	tun := up(t, n.Net, "a", ends(t, VXLAN, "10.9.1.2:4789", "10.9.2.2:4789")[0])
	if err := tun.Extend(t.Context(), time.Now().Add(200*time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	if err := clock.Step(host, -3*365*24*time.Hour); err != nil {
		t.Fatal(err)
	}
	nettest.Eventually(t, "process gone", 3*time.Second, func() bool {
		_, err := os.Stat("/proc/" + strconv.Itoa(tun.PID))
		return err != nil
	})
}

// TestOutlivesAndFound: the tunnel lives on when its parent was killed, is found
// again, lengthened, and taken down; after a kill of its own, Down cleans up.
func TestOutlivesAndFound(t *testing.T) {
	n := pathNet(t)
	cfg := ends(t, WireGuard, "10.9.1.2:51820", "10.9.2.2:51820")
	tun := up(t, n.Net, "a", cfg[0])
	if tun.PID == os.Getpid() || sessionOf(t, tun.PID) != tun.PID {
		t.Fatalf("the tunnel's process %d has no session of its own", tun.PID)
	}
	again := up(t, n.Net, "a", cfg[0])
	if again.PID != tun.PID {
		t.Fatal("a second Up started a second process")
	}
	other := cfg[0]
	other.Remote = netip.MustParseAddrPort("10.9.2.3:51820")
	if err := netns.Do(n.Name("a"), func() error { _, err := Up(t.Context(), other); return err }); err == nil {
		t.Error("Up with another remote took the running one over")
	}
	var found []Status
	n.Do("a", func() (err error) { found, err = Found(t.Context(), cfg[0].Dir); return err })
	if len(found) != 1 || !found[0].Alive || found[0].Name != "gwt0" || found[0].Remote != cfg[0].Remote {
		t.Fatalf("found %+v", found)
	}
	exec.Command("kill", "-9", strconv.Itoa(tun.PID)).Run()
	nettest.Eventually(t, "killed", 5*time.Second, func() bool { return tun.Refresh(t.Context()) != nil })
	n.Do("a", func() (err error) { found, err = Found(t.Context(), cfg[0].Dir); return err })
	if len(found) != 1 || found[0].Alive {
		t.Fatalf("found %+v after the kill", found)
	}
	n.Do("a", func() error { return Down(t.Context(), cfg[0].Dir, "gwt0") })
	n.Do("a", func() (err error) { found, err = Found(t.Context(), cfg[0].Dir); return err })
	if left, _ := os.ReadDir(cfg[0].Dir); len(found) != 0 || len(left) != 0 {
		t.Fatalf("left %+v %v", found, left)
	}
}

func sessionOf(t *testing.T, pid int) int {
	out, err := exec.Command("ps", "-o", "sid=", "-p", strconv.Itoa(pid)).Output()
	sid, _ := strconv.Atoi(strings.TrimSpace(string(out)))
	if err != nil {
		t.Fatal(err)
	}
	return sid
}

// TestUpCancelled: who gives up leaves nothing, whenever that is.
func TestUpCancelled(t *testing.T) {
	n := pathNet(t)
	cfg := ends(t, VXLAN, "10.9.1.2:51820", "10.9.2.2:51820")[0]
	cfg.MTU = 1300
	cancelled, took := 0, time.Duration(0) // took: the last that was let finish, for a machine's pace changes
	for i := range 41 {
		limit := time.Minute // the first finishes
		if i > 0 {
			limit = took * time.Duration(i%10) / 10
		}
		ctx, cancel := context.WithTimeout(t.Context(), limit)
		n.Do("a", func() error {
			began := time.Now()
			if _, err := Up(ctx, cfg); err == nil {
				took = time.Since(began)
				return Down(t.Context(), cfg.Dir, cfg.Name)
			}
			cancelled++
			if left, err := Found(t.Context(), cfg.Dir); err != nil || len(left) > 0 {
				t.Errorf("after %v: left %+v, %v", limit, left, err)
				return Down(t.Context(), cfg.Dir, cfg.Name)
			}
			return nil
		})
		cancel()
	}
	if cancelled < 10 {
		t.Errorf("cancelled %d times of 41", cancelled)
	}
}
