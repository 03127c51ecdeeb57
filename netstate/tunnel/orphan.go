package tunnel

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
	"golang.zx2c4.com/wireguard/wgctrl"

	"godwit/netstate/dump"
)

// A tunnel that the kernel carries goes on when its process is killed, and no lease ends it any more. Who brings it up
// again gives the same device a new process, so that no packet is lost by that.

// Orphaned says whether the device of that name is one of a tunnel whose process has ended. Up gives it another.
func Orphaned(ctx context.Context, dir, name string) bool {
	link, err := netlink.LinkByName(name)
	if err != nil || !strings.HasPrefix(link.Attrs().Alias, Alias) {
		return false
	}
	dead, err := Config{Dir: dir, Name: name}.dead(ctx)
	return err == nil && dead
}

// recorded is what the process of a tunnel wrote of it last, which has ended; its name alone where that cannot be read.
func recorded(dir, name string) Status {
	var s Status
	f, err := os.Open(Config{Dir: dir, Name: name}.record())
	if err == nil {
		err = json.NewDecoder(io.LimitReader(f, 64<<10)).Decode(&s)
		f.Close()
	}
	if err != nil || s.Name != name {
		return Status{Name: name}
	}
	s.Alive, s.PID = false, 0
	return s
}

// Over says that nobody keeps it, and that its lease has passed by which it would have ended.
func (s Status) Over(now time.Time) bool { return !s.Alive && !s.Lease.IsZero() && now.After(s.Lease) }

// dead says that no process has the tunnel's name. One that does not answer just now may live.
func (c Config) dead(ctx context.Context) (bool, error) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "unix", c.socket())
	switch {
	case err == nil:
		return false, conn.Close()
	case errors.Is(err, unix.ECONNREFUSED):
		return true, nil
	case errors.Is(err, os.ErrNotExist) && !Exists(c.Name):
		return true, nil
	case errors.Is(err, os.ErrNotExist):
		astray, err := Astray()
		return !slices.ContainsFunc(astray, func(s Status) bool { return s.Name == c.Name && s.PID != os.Getpid() }), err
	}
	return false, fmt.Errorf("control socket: %w", err)
}

// A process whose device is gone ends by itself, and may be just about to.
const (
	endsWithin = 2 * time.Second
	endsLook   = 20 * time.Millisecond
)

// free makes c's names free of what a process left that was killed, or says why c cannot have them. left: there is
// that one's device, and it is c's.
func free(ctx context.Context, c Config) (left bool, err error) {
	dead, err := c.dead(ctx)
	if err != nil {
		return false, err
	}
	link, _ := netlink.LinkByName(c.Name)
	for begun := time.Now(); !dead && link == nil && time.Since(begun) < endsWithin && ctx.Err() == nil; {
		time.Sleep(endsLook)
		if dead, err = c.dead(ctx); err != nil {
			return false, err
		}
	}
	switch {
	case !dead && link != nil:
		return false, fmt.Errorf("device %s: exists already", c.Name)
	case !dead:
		return false, fmt.Errorf("control socket %s: another process has it", c.socket())
	case link != nil && !c.made(link):
		return false, fmt.Errorf("device %s: exists already, and is no tunnel of Godwit's", c.Name)
	}
	if link != nil && !c.fits(link) {
		if err := netlink.LinkDel(link); err != nil {
			return false, fmt.Errorf("delete device %s of a tunnel that was: %w", c.Name, err)
		}
		link = nil
	}
	if err := os.Remove(c.socket()); err != nil && !errors.Is(err, os.ErrNotExist) {
		return false, err
	}
	return link != nil, nil
}

// made says whether a device of c's name was made by a process of this package: it bears our mark, or that process was
// killed before it set that, as its socket shows, for which no other device had the name.
func (c Config) made(link netlink.Link) bool {
	if link.Attrs().Alias != "" {
		return strings.HasPrefix(link.Attrs().Alias, Alias)
	}
	_, err := os.Lstat(c.socket())
	return err == nil && slices.Contains(kernelKinds, link.Type())
}

// kernelKinds are the kernel's names of all kinds that it carries.
var kernelKinds = []string{WireGuard, VXLAN, "gre", "ip6gre", "ipip", "ip6tnl"}

// fits says whether a device carries what c is to carry, and lacks nothing.
func (c Config) fits(link netlink.Link) bool {
	a := link.Attrs()
	kind, _ := kernelKind(c.Kind, c.Local.Addr().Is6())
	if link.Type() != kind || a.MTU != c.MTU || a.Alias != c.alias() || a.Flags&net.FlagUp == 0 {
		return false
	}
	addrs, err := dump.Addrs(link, unix.AF_INET)
	if err != nil || !slices.ContainsFunc(addrs, func(a netlink.Addr) bool {
		return a.IP.Equal(c.Inner.AsSlice()) && a.Peer != nil && a.Peer.IP.Equal(c.PeerInner.AsSlice())
	}) {
		return false
	}
	return c.Kind != WireGuard || c.hasKeys()
}

// hasKeys says whether the kernel's WireGuard has the keys of c.
func (c Config) hasKeys() bool {
	w, err := wgctrl.New()
	if err != nil {
		return false
	}
	defer w.Close()
	d, err := w.Device(c.Name)
	return err == nil && d.PrivateKey == c.PrivateKey && d.ListenPort == int(c.Local.Port()) && len(d.Peers) == 1 && d.Peers[0].PublicKey == c.PeerKey
}
