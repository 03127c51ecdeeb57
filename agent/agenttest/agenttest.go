// Package agenttest is, for tests, what those of package agent and of its parts share.
package agenttest

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"godwit/internal/clock"
	"godwit/internal/need"
	"godwit/migration"
	"godwit/netstate"
	"godwit/netstate/netns"
	"godwit/netstate/tunnel"
	"godwit/vm/guest"
)

// Refused checks that err is a problem of that code and one line with all words; no
// words: that there is none.
func Refused(t *testing.T, name string, err error, code migration.Code, words ...string) {
	t.Helper()
	if len(words) == 0 {
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		return
	}
	var problem *migration.Problem
	if !errors.As(err, &problem) || problem.Code != code {
		t.Errorf("%s: %v: want a problem of code %s", name, err, code)
		return
	}
	for _, w := range words {
		if !strings.Contains(problem.Text, w) {
			t.Errorf("%s: %q: want %q in it", name, problem.Text, w)
		}
	}
	if strings.Contains(problem.Text, "\n") || strings.Contains(problem.Text, "%!") {
		t.Errorf("%s: %q: want one line of words", name, problem.Text)
	}
}

// AdvertisedBy is what a router says (RFC 4861, 4.2) that is one for so many seconds.
func AdvertisedBy(router string, lifetime uint16) netstate.Advertisement {
	m := binary.BigEndian.AppendUint16([]byte{134, 0, 0, 0, 64, 0}, lifetime)
	return netstate.Advertisement{Router: netip.MustParseAddr(router), Message: append(m, make([]byte, 8)...)}
}

// Routers are the addresses of those who said it, in that order.
func Routers(all []netstate.Advertisement) []string {
	var out []string
	for _, ad := range all {
		out = append(out, ad.Router.String())
	}
	return out
}

// Bridged is a network namespace with a bridge br0, until the test ends.
func Bridged(t *testing.T) string {
	t.Helper()
	need.Root(t)
	name := fmt.Sprintf("t-bridged-%d", os.Getpid())
	if err := netns.Create(name); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { netns.Delete(name) }) //nolint:errcheck // it goes with the machine
	if out, err := exec.CommandContext(t.Context(), "ip", "-n", name, "link", "add", "br0", "up", "type", "bridge").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return name
}

// ChannelSocket is a guest that answers one client after the other at a socket, as QEMU has
// it; hang up ends the client of the moment.
func ChannelSocket(t *testing.T) (path string, hangUp func(), clients func() int) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "channel")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	var served []net.Conn
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			mu.Lock()
			served = append(served, conn)
			mu.Unlock()
			guest.NewServer(nil).Serve(context.Background(), conn, conn) //nolint:errcheck // ends with its client
			conn.Close()
		}
	}()
	hangUp = func() {
		mu.Lock()
		defer mu.Unlock()
		if n := len(served); n > 0 { // else its client has gone before it was seen
			served[n-1].Close()
		}
	}
	t.Cleanup(func() { l.Close(); hangUp(); <-ended })
	return path, hangUp, func() int { mu.Lock(); defer mu.Unlock(); return len(served) }
}

// OpensAfter has act do something of that kind (inotify(7)) to a file in dir, and open dir after that, which is for
// nothing but to sync it.
func OpensAfter(t *testing.T, dir string, kind uint32, act func()) {
	t.Helper()
	fd, err := unix.InotifyInit1(unix.IN_NONBLOCK | unix.IN_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd) //nolint:errcheck // it was only read
	if _, err := unix.InotifyAddWatch(fd, dir, unix.IN_OPEN|kind); err != nil {
		t.Fatal(err)
	}
	act()
	events := make([]byte, 4096)
	n, err := unix.Read(fd, events)
	if err != nil {
		t.Fatal(err)
	}
	done, opened := false, false
	for at := events[:n]; len(at) >= unix.SizeofInotifyEvent; { // wd, mask, cookie, len, name
		mask, name := binary.NativeEndian.Uint32(at[4:]), binary.NativeEndian.Uint32(at[12:])
		done = done || mask&kind != 0
		opened = opened || done && mask&unix.IN_ISDIR != 0
		at = at[unix.SizeofInotifyEvent+name:]
	}
	if !done || !opened {
		t.Errorf("done: %v; its directory was opened after that: %v", done, opened)
	}
}

// Tunnel is one end of a tunnel in this namespace, whose other end is nowhere, for one more minute; its process lives
// in dir.
func Tunnel(t *testing.T, dir, name string) tunnel.Config {
	t.Helper()
	private, _, err := tunnel.NewKey()
	if err != nil {
		t.Fatal(err)
	}
	_, public, err := tunnel.NewKey()
	if err != nil {
		t.Fatal(err)
	}
	end := tunnel.Config{
		Name: name, Kind: tunnel.WireGuard, Local: netip.MustParseAddrPort("127.0.0.1:7001"), Remote: netip.MustParseAddrPort("127.0.0.1:7002"),
		MTU: 1420, PrivateKey: private, Dir: dir, Lease: clock.Now().Add(time.Minute),
	}
	if end.PeerKey, err = tunnel.ParseKey(public); err != nil {
		t.Fatal(err)
	}
	return end
}
