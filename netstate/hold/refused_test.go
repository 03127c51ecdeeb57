package hold_test

import (
	"errors"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"godwit/internal/need"
	"godwit/netstate/hold"
	"godwit/netstate/internal/nettest"
)

// TestResendBehindOneThatIsRefused: one packet that a tunnel does not take, as it is too long for it, keeps none of
// those back that wait behind it.
func TestResendBehindOneThatIsRefused(t *testing.T) {
	n, via := hostBefore(t)
	const count, long = 10, 3
	frames := numbered(count)
	frames[long] = append(frames[long], make([]byte, 2000)...)
	n.Do("h", func() error {
		sent, err := hold.Resend(frames, "t2a")
		if sent != count-1 || !errors.Is(err, unix.EMSGSIZE) {
			t.Errorf("sent %d of %d, %v", sent, count, err)
		}
		return nil
	})
	came, err := hold.ReadLeft(via)
	if err != nil || len(came) != count-1 {
		t.Errorf("%d packets came of %d, %v", len(came), count-1, err)
	}
}

// TestResendIntoAFullQueue: packets that find no room in a queue, which others may have filled, wait for it. None is lost,
// nor are those behind it.
func TestResendIntoAFullQueue(t *testing.T) {
	need.Program(t, "tc")
	n, _ := host(t)
	n.IP("h", "link add out0 type veth peer name in0\nlink set out0 up\nlink set in0 up\nneigh add 10.8.0.2 dev out0 lladdr 02:00:00:00:00:02 nud permanent")
	n.Run("h", "tc", "qdisc", "replace", "dev", "out0", "root", "tbf", "rate", "8mbit", "burst", "2kb", "limit", "2000")
	came := func() (count uint64) {
		n.Do("h", func() error {
			in, err := netlink.LinkByName("in0")
			if err == nil {
				count = in.Attrs().Statistics.RxPackets
			}
			return err
		})
		return count
	}
	const count = 1000
	before := came()
	n.Do("h", func() error {
		sent, err := hold.Resend(numbered(count), "out0")
		if sent != count || err != nil {
			t.Errorf("sent %d of %d, %v", sent, count, err)
		}
		return nil
	})
	nettest.Eventually(t, "all have come", 10*time.Second, func() bool { return came()-before >= count })
}
