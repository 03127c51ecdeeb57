package lab

import (
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"

	"godwit/lab/scenario"
	"godwit/netstate"
	"godwit/netstate/netns"
	"godwit/netstate/tunnel"
)

// TestLeftoversAreNamed: each thing that agents left on a host is named, and before that what belongs to nothing, which
// its agent may take away as it ends. Of a host whose agent was killed nothing is said to belong to nothing.
func TestLeftoversAreNamed(t *testing.T) {
	guestsImage(t)
	s, err := scenario.Parse(t.Name(), []byte(twoSites))
	if err != nil {
		t.Fatal(err)
	}
	r, stopReaper, err := setUp(t.Context(), s, Options{})
	if err != nil {
		t.Fatal(err)
	}
	r.settling = 0
	montreal, sanjose := r.w.agents["montreal"], r.w.agents["sanjose"]
	process := exec.Command("sleep", "600")
	err = errors.Join(
		plantDevice(montreal, "gwt-left", ""), plantDevice(montreal, "gwt-tunnel", tunnel.Alias), plantRoute(montreal, "10.99.0.0/24"),
		plantDevice(sanjose, "gwt-tunnel", tunnel.Alias), sanjose.kill(), netns.Start(montreal.host.Namespace, process),
	)
	left := r.takeDown(t.Context(), stopReaper)
	if err != nil {
		t.Fatal(err)
	}
	process.Wait() //nolint:errcheck // it was ended with its namespace
	want := []string{
		"host montreal, before its agent ended: stray entry route 10.99.0.0/24 dev br-guest table 254: belongs to nothing",
		"host montreal, before its agent ended: tunnel gwt-tunnel from migration m-tunnel: belongs to nothing",
		"host montreal: device gwt-left",
		fmt.Sprintf("host montreal: process %d", process.Process.Pid),
		"host montreal: route 10.99.0.0/24 dev br-guest table 254",
	}
	slices.Sort(left)
	if diff := cmp.Diff(want, left); diff != "" {
		t.Errorf("left behind (-want +got):\n%s", diff)
	}
}

// plantDevice makes a device on a host that nobody there knows of.
func plantDevice(a *hostAgent, name, alias string) error {
	return netns.Do(a.host.Namespace, func() error {
		link := &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: name}}
		err := netlink.LinkAdd(link)
		if err == nil && alias != "" {
			err = netlink.LinkSetAlias(link, alias)
		}
		return err
	})
}

// plantRoute makes a route with our mark.
func plantRoute(a *hostAgent, to string) error {
	return netns.Do(a.host.Namespace, func() error {
		dst, err := netlink.ParseIPNet(to)
		if err != nil {
			return err
		}
		bridge, err := netlink.LinkByName(a.host.Bridge)
		if err != nil {
			return err
		}
		return netlink.RouteAdd(&netlink.Route{Dst: dst, LinkIndex: bridge.Attrs().Index, Protocol: netstate.Protocol})
	})
}
