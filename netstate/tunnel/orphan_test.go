package tunnel

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"godwit/netstate/internal/nettest"
)

// orphan is a tunnel of the kernel's whose process was killed, with a route into it; and its device.
func orphan(t *testing.T, n *nettest.Net, c Config) int {
	t.Helper()
	tun := up(t, n, "a", c)
	n.IP("a", "route add 10.1.1.5/32 dev "+c.Name+" via "+tun.PeerInner.String()+" onlink")
	if err := syscall.Kill(tun.PID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	var index int
	n.Do("a", func() error {
		nettest.Eventually(t, "nobody answers for the tunnel", 5*time.Second, func() bool { return Orphaned(t.Context(), c.Dir, c.Name) })
		link, err := netlink.LinkByName(c.Name)
		if err == nil {
			index = link.Attrs().Index
		}
		return err
	})
	return index
}

// TestOrphan: the device of a process that was killed gets another one, and what was led into it stays; then a lease ends
// it. One that would carry something else is made anew.
func TestOrphan(t *testing.T) {
	n := pathNet(t)
	n.mtu(1600)
	made := 0
	for name, c := range map[string]struct {
		change func(*Config)
		same   bool
	}{
		"the same": {func(*Config) {}, true}, "its socket is gone": {func(c *Config) { os.Remove(c.socket()) }, true},
		"another MTU": {func(c *Config) { c.MTU = 1400 }, false},
		"another end": {func(c *Config) {
			c.Local, c.Remote = netip.MustParseAddrPort("10.9.1.2:4790"), netip.MustParseAddrPort("10.9.2.2:4790")
		}, false},
		"taken down": {nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := ends(t, VXLAN, "10.9.1.2:4789", "10.9.2.2:4789")[0]
			made++ // each has a name of its own: the process of the last may be ending still
			cfg.MTU, cfg.Name = 1500, fmt.Sprintf("gwt%d", made)
			index := orphan(t, n.Net, cfg)
			n.Do("a", func() error {
				if found, err := Found(t.Context(), cfg.Dir); err != nil || len(found) != 1 || found[0].Alive {
					t.Errorf("found %+v, %v", found, err)
				}
				if c.change == nil {
					if err := os.WriteFile(cfg.halfRecord(), nil, 0o600); err != nil { // as it may be, too
						return err
					}
					err := Down(t.Context(), cfg.Dir, cfg.Name)
					left, _ := filepath.Glob(filepath.Join(cfg.Dir, "*"))
					if err != nil || Exists(cfg.Name) || len(left) > 0 {
						t.Errorf("taken down: %v, there %v, files %v", err, Exists(cfg.Name), left)
					}
					return nil
				}
				c.change(&cfg)
				again, err := Up(t.Context(), cfg)
				if err != nil {
					return err
				}
				link, err := netlink.LinkByName(cfg.Name)
				if err != nil {
					return err
				}
				led := strings.Contains(n.Run("a", "ip", "route", "show", "10.1.1.5"), cfg.Name)
				if (link.Attrs().Index == index) != c.same || led != c.same || link.Attrs().MTU != cfg.MTU || !again.Kernel || Orphaned(t.Context(), cfg.Dir, cfg.Name) {
					t.Errorf("device %d, before %d; led into it %v; %+v", link.Attrs().Index, index, led, again)
				}
				if err := again.Extend(t.Context(), time.Now()); err != nil {
					return err
				}
				nettest.Eventually(t, "its lease ends it", 5*time.Second, func() bool { return !Exists(cfg.Name) })
				return Down(t.Context(), cfg.Dir, cfg.Name)
			})
		})
	}
}

// TestHalfMade: a process that was killed before its device had our mark leaves one that is found, goes, and bars no other;
// what somebody else made stays.
func TestHalfMade(t *testing.T) {
	n := pathNet(t)
	n.mtu(1600)
	c := ends(t, VXLAN, "10.9.1.2:4789", "10.9.2.2:4789")[0]
	n.IP("a", "link add gwt0 type vxlan id 7 dstport 4799")
	n.Do("a", func() error {
		if _, err := Up(t.Context(), c); err == nil || !strings.Contains(err.Error(), "is no tunnel of Godwit's") {
			t.Errorf("in the place of another's device: %v", err)
		}
		if err := Down(t.Context(), c.Dir, c.Name); err != nil || !Exists(c.Name) {
			t.Errorf("another's was taken down: %v, there %v", err, Exists(c.Name))
		}
		return nil
	})
	killed := func() { // as its socket is left, and nobody listens
		fd, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
		if err == nil {
			err = syscall.Bind(fd, &syscall.SockaddrUnix{Name: c.socket()})
			syscall.Close(fd)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, taken := range []func(context.Context) error{
		func(ctx context.Context) error {
			found, err := Found(ctx, c.Dir)
			if err != nil || len(found) != 1 || found[0].Name != c.Name {
				return fmt.Errorf("found %+v, %w", found, err)
			}
			return Down(ctx, c.Dir, c.Name)
		},
		func(ctx context.Context) error {
			if _, err := Up(ctx, c); err != nil {
				return err
			}
			return Down(ctx, c.Dir, c.Name)
		},
	} {
		if !exists(n.Net, c.Name) {
			n.IP("a", "link add gwt0 type vxlan id 7 dstport 4799")
		}
		killed()
		n.Do("a", func() error { return taken(t.Context()) })
		if exists(n.Net, c.Name) {
			t.Error("the device is there still")
		}
	}
}

func exists(n *nettest.Net, device string) (there bool) {
	n.Do("a", func() error { there = Exists(device); return nil })
	return there
}

// TestFreeOfOneThatEnds: a process whose device is gone ends by itself, and its name is free then; one that goes on has it.
func TestFreeOfOneThatEnds(t *testing.T) {
	for name, ends := range map[string]bool{"it ends": true, "it goes on": false} {
		c := Config{Name: "gwt-none", Dir: t.TempDir()}
		there, err := net.Listen("unix", c.socket())
		if err != nil {
			t.Fatal(err)
		}
		if ends {
			time.AfterFunc(3*endsLook, func() { there.Close() })
		}
		if left, err := free(t.Context(), c); left || (err == nil) != ends {
			t.Errorf("%s: %v, %v", name, left, err)
		}
		there.Close()
	}
}
