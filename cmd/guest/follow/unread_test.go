package follow

import (
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"slices"
	"syscall"
	"testing"
	"time"

	"godwit/internal/need"
	"godwit/netstate/mptcp"

	"golang.org/x/sys/unix"
)

// TestUnreadIsNeeded: a peer that reads a long answer slowly needs the address until it has that, also where it has
// said all (its FIN is there), though the guest has closed the connection, or its side of one that began as MPTCP: the
// kernel sends what is left.
func TestUnreadIsNeeded(t *testing.T) {
	for name, c := range map[string]struct {
		fellBack, saidAll bool
		end               func(*net.TCPConn) error
		state             mptcp.State
	}{
		"closed":                             {false, true, (*net.TCPConn).Close, mptcp.StateLastAck},
		"fell back, and is closed on a side": {true, true, (*net.TCPConn).CloseWrite, mptcp.StateLastAck},
		"fell back, and is closed":           {true, true, (*net.TCPConn).Close, mptcp.StateLastAck},
		"closed first":                       {false, false, (*net.TCPConn).Close, mptcp.StateFinWait1},
		"fell back, and is closed first":     {true, false, (*net.TCPConn).Close, mptcp.StateFinWait1},
	} {
		t.Run(name, func(t *testing.T) {
			setUp(t)
			ours, theirs := unread(t, c.fellBack, c.saidAll)
			end := netip.MustParseAddrPort(ours.LocalAddr().String())
			if err := c.end(ours); err != nil {
				t.Fatal(err)
			}
			awaitState(t, end, c.state)
			users, err := Users([]netip.Addr{client})
			if err != nil || users.TCP != 1 {
				t.Errorf("%+v, %v: want the one that is still to get data", users, err)
			}
			all, err := connections([]netip.Addr{client})
			if err != nil || len(all) != 1 || all[0].Local != end {
				t.Errorf("%+v, %v: want it listed", all, err)
			}
			if n, err := io.Copy(io.Discard, theirs); err != nil || n != answerLen {
				t.Errorf("read %d bytes, %v", n, err)
			}
			for limit := need.Patient(20 * time.Second); c.saidAll; time.Sleep(5 * time.Millisecond) { // else it may say more
				if users, err = Users([]netip.Addr{client}); err != nil || users.TCP == 0 {
					break
				}
				if limit.Over() {
					t.Fatalf("%+v: it has all", users)
				}
			}
			if err != nil {
				t.Fatal(err)
			}
		})
	}
}

// answerLen is more than a peer with the smallest buffer takes unread, and less than a socket takes at once.
const answerLen = 20000

// unread is a connection of ours from client, and its other end, which reads nothing of what was written to it, and may
// have sent its FIN.
func unread(t *testing.T, fellBack, saidAll bool) (ours *net.TCPConn, theirs net.Conn) {
	t.Helper()
	narrow := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) (err error) {
		told := c.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUF, 1) })
		return errors.Join(told, err)
	}}
	narrow.SetMultipathTCP(false)
	listener, err := narrow.Listen(context.Background(), "tcp", netip.AddrPortFrom(from, 0).String())
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: client.AsSlice()}}
	dialer.SetMultipathTCP(fellBack)
	dialled, err := dialer.Dial("tcp", listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { dialled.Close() })
	if theirs, err = listener.Accept(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { theirs.Close() })
	if saidAll {
		if err := theirs.(*net.TCPConn).CloseWrite(); err != nil {
			t.Fatal(err)
		}
		if n, err := dialled.Read(make([]byte, 1)); n != 0 || !errors.Is(err, io.EOF) {
			t.Fatalf("read %d bytes, %v", n, err)
		}
	}
	if _, err := dialled.Write(make([]byte, answerLen)); err != nil {
		t.Fatal(err)
	}
	return dialled.(*net.TCPConn), theirs
}

// awaitState returns when the socket at that end has that state.
func awaitState(t *testing.T, end netip.AddrPort, state mptcp.State) {
	t.Helper()
	for limit := need.Patient(20 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		_, plain, err := mptcp.All()
		if err != nil {
			t.Fatal(err)
		}
		if slices.ContainsFunc(plain, func(s mptcp.Socket) bool { return s.Local == end && s.State == state }) {
			return
		}
		if limit.Over() {
			t.Fatalf("%s is not in %s: %+v", end, state, plain)
		}
	}
}
