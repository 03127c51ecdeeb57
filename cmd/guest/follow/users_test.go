package follow

import (
	"context"
	"net"
	"net/netip"
	"os/exec"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"

	"godwit/internal/need"
	"godwit/netstate/conntrack"
	"godwit/netstate/mptcp"
)

// TestUsersOfOneServer: a plain connection counts, also where another of ours to the same
// server is MPTCP.
func TestUsersOfOneServer(t *testing.T) {
	setUp(t)
	near, _ := connect(t, true)
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: client.AsSlice()}}
	dialer.SetMultipathTCP(false)
	plain, err := dialer.DialContext(context.Background(), "tcp", near.RemoteAddr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer plain.Close()
	users, err := Users([]netip.Addr{client})
	if err != nil || users.MPTCP != 1 || users.TCP != 1 {
		t.Errorf("%+v, %v: want one of each", users, err)
	}
}

// TestFinishing: what the kernel is only closing needs no address, once its peer has all but the FIN; what has an owner
// may, unless it began as MPTCP, as such a one may have its owner until the end.
func TestFinishing(t *testing.T) {
	for _, c := range []struct {
		socket mptcp.Socket
		want   bool
	}{
		{mptcp.Socket{State: mptcp.StateEstablished}, false},
		{mptcp.Socket{State: mptcp.StateLastAck}, false},
		{mptcp.Socket{State: mptcp.StateLastAck, Orphan: true, Unacked: 1}, true},
		{mptcp.Socket{State: mptcp.StateLastAck, Orphan: true, Unacked: 2}, false},
		{mptcp.Socket{State: mptcp.StateLastAck, Orphan: true, Unacked: 1e6, Figures: mptcp.Figures{Unanswered: 3}}, true},
		{mptcp.Socket{State: mptcp.StateClosing, Orphan: true, Unacked: 1}, true},
		{mptcp.Socket{State: mptcp.StateClosing, Orphan: true, Unacked: 1e6}, false},
		{mptcp.Socket{State: mptcp.StateFinWait2, Orphan: true}, true},
		{mptcp.Socket{State: mptcp.StateFinWait1, Orphan: true}, false},
		{mptcp.Socket{State: mptcp.StateFinWait1, Orphan: true, Figures: mptcp.Figures{Unanswered: 3}}, true},
		{mptcp.Socket{State: mptcp.StateLastAck, Fallback: true, Unacked: 1}, true},
		{mptcp.Socket{State: mptcp.StateLastAck, Fallback: true, Unacked: 1e6}, false},
		{mptcp.Socket{State: mptcp.StateClosing, Fallback: true, Unacked: 1}, true},
		{mptcp.Socket{State: mptcp.StateClosing, Fallback: true, Unacked: 2}, false},
		{mptcp.Socket{State: mptcp.StateCloseWait, Fallback: true}, false},
		{mptcp.Socket{State: mptcp.StateFinWait2, Fallback: true}, false},
	} {
		if got := finishing(c.socket); got != c.want {
			t.Errorf("%+v: %t", c.socket, got)
		}
	}
}

// TestSilentTracking: where the kernel does not tell what it forwards, such as without its module, the guest's own
// sockets are known all the same.
func TestSilentTracking(t *testing.T) {
	need.Program(t, "nft")
	setUp(t)
	const tracks = "add table ip tracks; add chain ip tracks in { type filter hook input priority 0; }; add rule ip tracks in ct state established"
	if out, err := exec.Command("nft", tracks).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	t.Cleanup(func() { _ = exec.Command("nft", "delete table ip tracks").Run() })
	connect(t, false)
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // it ends with this function, and with it that it may not ask
		header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
		if err := unix.Capset(&header, &make([]unix.CapUserData, 2)[0]); err != nil {
			t.Error(err)
			return
		}
		if _, err := conntrack.Translated([]netip.Addr{client}); err == nil {
			t.Error("the kernel tells all the same")
		}
		users, err := Users([]netip.Addr{client})
		if err != nil || users.MPTCP+users.TCP != 1 {
			t.Errorf("%+v, %v: want one", users, err)
		}
		list, err := new(Lists).Connections([]netip.Addr{client}, 0, 0)
		if err != nil || len(list.List) != 1 {
			t.Errorf("%+v, %v: want one", list, err)
		}
	}()
	<-done
}
