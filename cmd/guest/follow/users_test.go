package follow

import (
	"context"
	"net"
	"net/netip"
	"testing"
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
