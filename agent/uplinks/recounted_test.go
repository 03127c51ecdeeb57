package uplinks

import (
	"fmt"
	"net"
	"net/netip"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"godwit/agent/config"
	"godwit/agent/peer"
	"godwit/internal/need"
	"godwit/netstate/meter"
	"godwit/netstate/netns"
)

// recounting sends by an uplink, and has its device come and go.
type recounting struct {
	t      *testing.T
	meters *Meters
	told   []string
}

// runs has ip do each line.
func (r recounting) runs(lines ...string) error {
	for _, line := range lines {
		if out, err := exec.CommandContext(r.t.Context(), "ip", strings.Fields(line)...).CombinedOutput(); err != nil {
			return fmt.Errorf("ip %s: %w: %s", line, err, out)
		}
	}
	return nil
}

// plug makes the device.
func (r recounting) plug() error {
	return r.runs("link add wan type veth peer name far", "link set far up", "link set wan up", "addr add 10.8.1.1/24 dev wan",
		"neigh add 10.8.1.2 lladdr 02:00:00:00:00:02 dev wan nud permanent")
}

// sends are two datagrams of 100 bytes in a tunnel for memory, after which the meters have so many bytes.
func (r recounting) sends(when string, want int64) error {
	conn, err := net.Dial("udp", "10.8.1.2:700")
	if err != nil {
		return err
	}
	defer conn.Close()
	for range 2 {
		if _, err := conn.Write(make([]byte, 100-28)); err != nil {
			return err
		}
	}
	if got := r.sent(); got != want {
		return fmt.Errorf("%s: %d bytes were sent, want %d; told %q", when, got, want, r.told)
	}
	return nil
}

func (r recounting) sent() int64 {
	paths := []peer.Path{{Name: "public-public", Local: netip.MustParseAddr("10.8.1.1"), Remote: netip.MustParseAddr("10.8.1.2")}}
	return r.meters.Sent(paths, []uint16{700}).tunnels["public-public"]
}

// TestDeviceMadeAnew: what leaves by an uplink is counted on where its device was deleted and made again, and as soon as
// there is one, where there was none. Each is told once.
func TestDeviceMadeAnew(t *testing.T) {
	need.Root(t)
	r := recounting{t: t}
	err := netns.Once(func() error {
		tell := func(msg string, args ...any) {
			r.told = append(r.told, fmt.Sprint(append([]any{msg, " "}, args[:2]...)...))
		}
		r.meters = OpenMeters([]config.Uplink{{Name: "public", Address: netip.MustParseAddr("10.8.1.1"), Device: "wan"}}, tell)
		defer r.meters.Close()
		if err := r.plug(); err != nil {
			return err
		}
		if got := r.sent(); got != 0 {
			return fmt.Errorf("%d bytes before any was sent", got)
		}
		for n := range int64(3) {
			if err := r.sends("plugged in", 200*(n+1)); err != nil {
				return err
			}
			if err := r.runs("link del wan"); err != nil {
				return err
			}
			for range 3 {
				if got := r.sent(); got != 200*(n+1) {
					return fmt.Errorf("without its device: %d bytes", got)
				}
			}
			if err := r.plug(); err != nil {
				return err
			}
			r.sent()
		}
		if err := r.sends("at last", 800); err != nil {
			return err
		}
		for guest := range mostEarlier + 1 { // what guests send by that device
			r.meters.byDevice["wan"].earlier[meter.Key{Out: true, Src: netip.AddrFrom4([4]byte{10, 9, byte(guest >> 8), byte(guest)})}] = 1
		}
		if err := r.runs("link del wan"); err != nil {
			return err
		}
		if got := r.sent(); got != 800 || len(r.meters.byDevice["wan"].earlier) > 2 {
			return fmt.Errorf("beside guests: %d bytes, of %d flows", got, len(r.meters.byDevice["wan"].earlier))
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	none, again := "wire bytes are not counted uplinkpublic", "wire bytes are counted again uplinkpublic"
	if want := []string{none, again, none, again, none, again, none, again, none}; !slices.Equal(r.told, want) {
		t.Errorf("told %q", r.told)
	}
}
