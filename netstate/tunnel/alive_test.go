package tunnel

import (
	"errors"
	"net"
	"net/netip"
	"os"
	"testing"
	"time"

	"golang.zx2c4.com/wireguard/device"
)

// TestBeginsByItself: an end that has nothing to send begins a session nevertheless, once its tunnel stands for a
// while: the other may not be able to, as its clock was set back. At first it carries nothing of its own.
func TestBeginsByItself(t *testing.T) {
	n := pathNet(t)
	cfg := ends(t, WireGuard, "10.9.1.2:51820", "10.9.2.2:51820")
	var other *net.UDPConn // in the place of the other end
	n.Do("b", func() (err error) {
		other, err = net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.MustParseAddrPort("10.9.2.2:51820")))
		return err
	})
	defer other.Close()
	tun := up(t, n.Net, "a", cfg[0])
	heard := func(within time.Duration) error {
		packet := make([]byte, 2048)
		other.SetReadDeadline(time.Now().Add(within))
		size, err := other.Read(packet)
		if err == nil && kind(packet[:size]) != device.MessageInitiationType {
			t.Errorf("%d bytes that begin no session", size)
		}
		return err
	}
	if err := heard(time.Second); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("it carries something of its own as it begins: %v", err)
	}
	for range 2 { // the second time it is alive already
		if err := tun.Extend(t.Context(), time.Now().Add(time.Minute)); err != nil {
			t.Fatal(err)
		}
	}
	if err := heard(20 * time.Second); err != nil {
		t.Errorf("it waits for the other end to begin: %v", err)
	}
}
