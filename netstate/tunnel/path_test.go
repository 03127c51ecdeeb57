package tunnel

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"testing"
	"time"

	"golang.zx2c4.com/wireguard/wgctrl/wgtypes"

	"godwit/netstate/internal/nettest"
	"godwit/netstate/netns"
)

// A path is hosts a and b with a router between.
type path struct{ *nettest.Net }

// pathNet is a path whose far link has a smaller MTU.
func pathNet(t *testing.T, others ...string) *path {
	n := &path{nettest.New(t, append([]string{"a", "r", "b"}, others...)...)}
	n.Wire("a", "up", "r", "ra")
	n.Wire("b", "up", "r", "rb")
	n.IP("a", "addr add 10.9.1.2/24 dev up\naddr add fd09:1::2/64 dev up nodad\nroute add default via 10.9.1.1\nroute add default via fd09:1::1")
	n.IP("b", "addr add 10.9.2.2/24 dev up\naddr add fd09:2::2/64 dev up nodad\nroute add default via 10.9.2.1\nroute add default via fd09:2::1")
	n.IP("r", "addr add 10.9.1.1/24 dev ra\naddr add fd09:1::1/64 dev ra nodad\naddr add 10.9.2.1/24 dev rb\naddr add fd09:2::1/64 dev rb nodad")
	n.Sysctl("r", "ipv6/conf/all/forwarding=1")
	n.mtu(1400)
	return n
}

// mtu sets what the far link carries; the near one never carries less than 1500.
func (n *path) mtu(far int) {
	for _, end := range [][2]string{{"b", "up"}, {"r", "rb"}} {
		n.IP(end[0], fmt.Sprintf("link set dev %s mtu %d", end[1], far))
	}
	for _, end := range [][2]string{{"a", "up"}, {"r", "ra"}} {
		n.IP(end[0], fmt.Sprintf("link set dev %s mtu %d", end[1], max(far, 1500)))
	}
}

// ends returns the configurations of both ends.
func ends(t *testing.T, kind, a, b string) [2]Config {
	var keys [2]wgtypes.Key
	for i := range keys {
		k, err := wgtypes.GeneratePrivateKey()
		if err != nil {
			t.Fatal(err)
		}
		keys[i] = k
	}
	at := [2]netip.AddrPort{netip.MustParseAddrPort(a), netip.MustParseAddrPort(b)}
	var c [2]Config
	for i := range c {
		c[i] = Config{Name: "gwt0", Kind: kind, Local: at[i], Remote: at[1-i], PrivateKey: keys[i], PeerKey: keys[1-i].PublicKey(),
			Dir: shortDir(t), Lease: time.Now().Add(time.Minute)}
	}
	return c
}

func shortDir(t *testing.T) string {
	dir, err := os.MkdirTemp("", "gwt")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

func up(t *testing.T, n *nettest.Net, name string, c Config) *Tunnel {
	t.Helper()
	var tun *Tunnel
	n.Do(name, func() (err error) { tun, err = Up(t.Context(), c); return err })
	t.Cleanup(func() {
		netns.Do(n.Name(name), func() error { return Down(context.Background(), c.Dir, c.Name) })
	})
	return tun
}

// verify sends an echo of full size from a through its tunnel, and waits until it is back: a minute at the most.
func (n *path) verify(t *testing.T, a *Tunnel) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	n.Do("a", func() error { return a.Verify(ctx) })
}
