package wan

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"

	"godwit/netstate/netns"

	"github.com/vishvananda/netlink"
)

// HaveNetem says if the kernel has netem and tc(8) can set it: tried once, in a
// namespace made for it.
var HaveNetem = sync.OnceValue(func() bool {
	return netns.Once(func() error {
		return tc("qdisc", "add", "dev", "lo", "root", "netem", "delay", "1ms")
	}) == nil
})

// tc runs one tc(8) command in the calling thread's namespace.
func tc(args ...string) error {
	out, err := exec.Command("tc", args...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("tc %s: %w: %s", strings.Join(args, " "), err, bytes.TrimSpace(out))
	}
	return nil
}

// netemLink is a veth pair with a queueing discipline on each end.
type netemLink struct {
	ends    [2]End
	mu      sync.Mutex
	tallies [2]tally
	gone    bool
	link    Link
	tc      func(args ...string) error
}

// StartNetem makes a link of the kernel's own parts. On failure nothing remains.
func StartNetem(ctx context.Context, a, b End, link Link) (Emulator, error) {
	if err := link.Check(); err != nil {
		return nil, err
	}
	n := &netemLink{ends: [2]End{a, b}, link: link, tc: tc}
	if err := n.make(); err != nil {
		return nil, err
	}
	if err := errors.Join(n.Set(link), ctx.Err()); err != nil {
		return nil, errors.Join(err, n.Close())
	}
	return n, nil
}

// make makes the veth pair. Both ends have the same address and ask nobody for it, so
// that they take routes without a next hop, as a TUN device does.
func (n *netemLink) make() error {
	a, b := n.ends[0], n.ends[1]
	if err := netns.Do(a.Namespace, func() error {
		far, err := os.Open(netns.Path(b.Namespace))
		if err != nil {
			return fmt.Errorf("make veth %s: %w", a.Device, err)
		}
		defer far.Close()
		attrs := netlink.NewLinkAttrs()
		attrs.Name, attrs.MTU = a.Device, n.link.MTUBytes()
		attrs.HardwareAddr = []byte{0x02, 'g', 'w', 0, 0, 1}
		if err := netlink.LinkAdd(&netlink.Veth{
			LinkAttrs: attrs, PeerName: b.Device, PeerHardwareAddr: attrs.HardwareAddr,
			PeerNamespace: netlink.NsFd(far.Fd()), PeerTxQLen: -1, // the kernel's default
		}); err != nil {
			return fmt.Errorf("make veth %s: %w", a.Device, err)
		}
		return nil
	}); err != nil {
		return err
	}
	for _, end := range n.ends {
		if err := netns.Do(end.Namespace, func() error { return raise(end.Device) }); err != nil {
			return errors.Join(err, n.Close())
		}
	}
	return nil
}

func raise(device string) error {
	link, err := netlink.LinkByName(device)
	if err != nil {
		return fmt.Errorf("find %s: %w", device, err)
	}
	if err := netns.Sysctl("net.ipv6.conf."+device+".addr_gen_mode", "1"); err != nil {
		return err
	}
	return errors.Join(netlink.LinkSetARPOff(link), netlink.LinkSetUp(link))
}

func (n *netemLink) Set(link Link) error {
	if err := link.Check(); err != nil {
		return err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	for i := range n.ends {
		if err := n.set(i, n.link, link); err != nil {
			return errors.Join(err, n.putBack(i, link))
		}
	}
	n.link = link
	return nil
}

// putBack makes the ends up to last, which a change to failed reached, as they were.
func (n *netemLink) putBack(last int, failed Link) error {
	if failed == n.link { // it is being made
		return nil
	}
	var err error
	for i := range last + 1 {
		err = errors.Join(err, n.set(i, failed, n.link))
	}
	if err != nil {
		return fmt.Errorf("put the link back: %w", err)
	}
	return nil
}

// set makes what leaves an end behave like link. What was dropped until now is counted
// first, by the settings that dropped it; a cut loses what is on its way.
func (n *netemLink) set(i int, before, link Link) error {
	return netns.Do(n.ends[i].Namespace, func() error {
		device := n.ends[i].Device
		dev, err := netlink.LinkByName(device)
		if err != nil {
			return fmt.Errorf("find %s: %w", device, err)
		}
		if err := n.count(dev, i, before); err != nil {
			return err
		}
		if err := netlink.LinkSetMTU(dev, link.MTUBytes()); err != nil {
			return fmt.Errorf("set mtu of %s: %w", device, err)
		}
		carried, carry := carries(before, i), carries(link, i)
		commands := disciplines(device, link, carry)
		if carried && !carry && n.tallies[i].seen != (readings{}) {
			commands = append([][]string{{"qdisc", "del", "dev", device, "root"}}, commands...)
			n.tallies[i].emptied()
		}
		for _, args := range commands {
			if err := n.tc(args...); err != nil {
				return err
			}
		}
		return nil
	})
}

// disciplines are the tc(8) commands that make what leaves device behave like link.
// tbf is the root: it cuts large sends to its burst before netem sees them, so that
// loss and the limit count packets. They replace what an earlier call has set.
func disciplines(device string, link Link, carries bool) [][]string {
	rate := link.Rate
	if rate == 0 {
		rate = maxRate
	}
	mtu := link.MTUBytes()
	burst := min(max(int(float64(rate)/8*grain.Seconds()), 2*mtu), 32000)
	flying := float64(rate) / 8 * (link.Delay + link.Jitter).Seconds()
	if link.Rate == 0 {
		flying = lineLimit
	}
	limit := (link.QueueBytes() + int(flying) + mtu - 1) / mtu
	root := fmt.Sprintf("qdisc replace dev %s root handle 1: tbf rate %dbit burst %d limit %d", device, rate, burst, link.QueueBytes())
	// A rate makes netem keep the order of packets under jitter (sch_netem).
	netem := fmt.Sprintf("qdisc replace dev %s parent 1:1 handle 10: netem limit %d delay %dus %dus rate %dbit",
		device, limit, link.Delay.Microseconds(), link.Jitter.Microseconds(), int64(maxRate))
	switch {
	case !carries:
		netem += " loss 100%"
	case link.Loss > 0:
		netem += fmt.Sprintf(" loss %.6f%%", 100*link.Loss)
	}
	return [][]string{strings.Fields(root), strings.Fields(netem)}
}

func (n *netemLink) Counters() (Counters, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	var err error
	for i, end := range n.ends {
		err = errors.Join(err, netns.Do(end.Namespace, func() error {
			dev, err := netlink.LinkByName(end.Device)
			if err != nil {
				return fmt.Errorf("find %s: %w", end.Device, err)
			}
			return n.count(dev, i, n.link)
		}))
	}
	return Counters{AB: n.tallies[0].sum, BA: n.tallies[1].sum}, err
}

// count adds up what the disciplines of an end have counted under the settings of link.
func (n *netemLink) count(dev netlink.Link, i int, link Link) error {
	list, err := netlink.QdiscList(dev)
	if err != nil {
		return fmt.Errorf("list disciplines of %s: %w", dev.Attrs().Name, err)
	}
	n.tallies[i].add(read(list), link, carries(link, i))
	return nil
}

func (n *netemLink) Close() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.gone {
		return nil
	}
	n.gone = true
	end := n.ends[0]
	err := netns.Do(end.Namespace, func() error {
		link, err := netlink.LinkByName(end.Device)
		if errors.As(err, new(netlink.LinkNotFoundError)) {
			return nil
		}
		if err != nil {
			return err
		}
		return netlink.LinkDel(link)
	})
	if errors.Is(err, os.ErrNotExist) {
		return nil // the namespace went before, and the device with it
	}
	if err != nil {
		return fmt.Errorf("close link %s: %w", end.Device, err)
	}
	return nil
}

func (n *netemLink) Kind() string { return "netem" }
