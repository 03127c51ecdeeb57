package tunnel

import (
	"context"
	"syscall"
	"testing"
	"time"

	"godwit/internal/need"
	"godwit/netstate/internal/nettest"
)

// burst is more changes of a host's links than a process that does not listen meanwhile can take in.
func burst(n *nettest.Net, at string) {
	n.Run(at, "sh", "-c", "seq 3000 | sed 's/^/link set dev up alias /' | ip -batch -")
}

// TestManyLinkChanges: a process that has missed changes of the host's links keeps its tunnel while it has a device,
// and ends where it has none.
func TestManyLinkChanges(t *testing.T) {
	n := pathNet(t)
	for _, kind := range []string{WireGuard, VXLAN} {
		t.Run(kind, func(t *testing.T) {
			cfg := ends(t, kind, "10.9.1.2:51820", "10.9.2.2:51820")
			for i := range cfg {
				cfg[i].MTU = 1300 // VXLAN does not fragment what is larger than the path
			}
			a, _ := up(t, n.Net, "a", cfg[0]), up(t, n.Net, "b", cfg[1])
			n.verify(t, a)
			stopped := func(what func()) {
				need.Stop(t, a.PID)
				what()
				if err := syscall.Kill(a.PID, syscall.SIGCONT); err != nil {
					t.Fatal(err)
				}
			}
			stopped(func() { burst(n.Net, "a") })
			time.Sleep(300 * time.Millisecond)
			n.verify(t, a)
			stopped(func() { burst(n.Net, "a"); n.IP("a", "link del gwt0") })
			ended(t, a.PID)
			n.verify(t, up(t, n.Net, "a", cfg[0]))
		})
	}
}

// ended waits for a tunnel's process to be gone.
func ended(t *testing.T, pid int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := vanish(ctx, pid); err != nil {
		t.Error(err)
	}
}

// TestUpAgainWithoutDevice: a process that lives without its device is no tunnel.
func TestUpAgainWithoutDevice(t *testing.T) {
	n := pathNet(t)
	cfg := ends(t, VXLAN, "10.9.1.2:51820", "10.9.2.2:51820")
	cfg[0].MTU, cfg[1].MTU = 1300, 1300
	a, _ := up(t, n.Net, "a", cfg[0]), up(t, n.Net, "b", cfg[1])
	need.Stop(t, a.PID)
	n.IP("a", "link del gwt0")
	go func() { // it answers again while it is asked, and before it has heard
		time.Sleep(100 * time.Millisecond)
		syscall.Kill(a.PID, syscall.SIGCONT)
	}()
	n.verify(t, up(t, n.Net, "a", cfg[0]))
}
