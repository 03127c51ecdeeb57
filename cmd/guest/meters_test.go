package main

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"godwit/netstate/meter"
	"godwit/vm/guest"
)

// datagrams sends some to the guest's NIC, as its LAN would.
func datagrams(t *testing.T, far, mac string, to netip.Addr, port uint16, n int) {
	t.Helper()
	hardware, err := net.ParseMAC(mac)
	must(t, err)
	ifi, err := net.InterfaceByName(far)
	for end := time.Now().Add(5 * time.Second); err == nil && ifi.Flags&net.FlagRunning == 0 && time.Now().Before(end); time.Sleep(time.Millisecond) {
		ifi, err = net.InterfaceByName(far) // the kernel notices within a second that its peer is up, and drops what is sent until then
	}
	must(t, err)
	frame := append(append(append([]byte{}, hardware...), ifi.HardwareAddr...), 8, 0,
		0x45, 0, 0, 28, 0, 0, 0, 0, 64, unix.IPPROTO_UDP, 0, 0, 10, 9, 3, 4)
	frame = append(frame, to.AsSlice()...)
	frame = binary.BigEndian.AppendUint16(binary.BigEndian.AppendUint16(frame, 4433), port)
	frame = append(frame, 0, 8, 0, 0)
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW, 0)
	must(t, err)
	defer unix.Close(fd)
	for range n {
		must(t, unix.Sendto(fd, frame, 0, &unix.SockaddrLinklayer{Ifindex: ifi.Index}))
	}
}

// indexOf is a device's.
func indexOf(t *testing.T, name string) nicID {
	t.Helper()
	ifi, err := net.InterfaceByName(name)
	must(t, err)
	return nicID(ifi.Index)
}

// TestMetersAreOfNICs: a guest with containers has no meter for each of their ends, nor for bridges, nor for what is
// gone. One that gets another name is counted on.
func TestMetersAreOfNICs(t *testing.T) {
	makeNICs(t)
	container := exec.Command("unshare", "-n", "sleep", "60")
	must(t, container.Start())
	defer func() {
		container.Process.Kill()
		container.Wait() //nolint:errcheck // killed
	}()
	must(t, awaitOwnNet(container.Process.Pid))
	for _, command := range []string{
		"ip link add over type bridge", "ip link add gone0 type veth peer name gone1",
		fmt.Sprintf("ip link add inner type veth peer name eth0 netns %d", container.Process.Pid),
	} {
		if out, err := exec.Command("/bin/sh", "-c", command).CombinedOutput(); err != nil {
			t.Fatalf("%s: %v %s", command, err, out)
		}
	}
	defer exec.Command("/bin/sh", "-c", "ip link del over; ip link del inner").Run()
	var m meters
	metered := func() (names []string) {
		m.watchAll()
		for nic := range m.devices {
			names = append(names, m.names[nic])
		}
		slices.Sort(names)
		return names
	}
	want(t, "metered", metered(), []string{"far0", "far1", "gone0", "gone1", "nic0", "nic1"})
	must(t, exec.Command("ip", "link", "del", "gone0").Run())
	want(t, "metered", metered(), []string{"far0", "far1", "nic0", "nic1"})
	before := m.devices[indexOf(t, "nic1")]
	must(t, exec.Command("ip", "link", "set", "nic1", "down").Run()) // kernels before 6.2 rename none that is up
	must(t, exec.Command("ip", "link", "set", "nic1", "name", "enp0s4").Run())
	defer exec.Command("ip", "link", "set", "enp0s4", "name", "nic1").Run()
	want(t, "metered, as one has another name", metered(), []string{"enp0s4", "far0", "far1", "nic0"})
	want(t, "it is counted on", m.devices[indexOf(t, "enp0s4")] == before, true)
	want(t, "failed", m.failed, nil)
	for _, opened := range m.devices {
		must(t, opened.Close())
	}
}

// awaitOwnNet returns when a process has a network namespace of its own.
func awaitOwnNet(pid int) error {
	own, err := os.Readlink("/proc/self/ns/net")
	for end := time.Now().Add(5 * time.Second); err == nil && time.Now().Before(end); time.Sleep(time.Millisecond) {
		if its, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/net", pid)); err == nil && its != own {
			return nil
		}
	}
	return errors.Join(err, errors.New("it has none"))
}

// TestUseIsSeenForGood: however many flows a guest has had, and whenever its NIC was plugged in, datagrams to an address
// are seen to be use of it: nobody may take the address from them.
func TestUseIsSeenForGood(t *testing.T) {
	makeNICs(t)
	n := newNode(&family{})
	if out, err := exec.Command("/bin/sh", "-c", "ip link set nic0 up; ip addr add "+oldV4.String()+" dev nic0; ip neigh replace 10.9.1.1 lladdr 52:54:00:00:09:99 dev nic0").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	grows := func(when, far, mac string, addr netip.Addr) {
		t.Helper()
		before := n.meters.udp([]netip.Addr{addr})
		for range 3 {
			datagrams(t, far, mac, addr, 443, 10)
			var now uint64
			for end := time.Now().Add(5 * time.Second); now < before+10 && time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
				now = n.meters.udp([]netip.Addr{addr})
			}
			if now != before+10 {
				t.Errorf("%s: 10 datagrams more are %d", when, now-before)
			}
			before = now
		}
	}
	grows("at first", "far0", firstMAC, oldV4.Addr())
	conn, err := net.ListenUDP("udp4", &net.UDPAddr{IP: oldV4.Addr().AsSlice()})
	must(t, err)
	defer conn.Close()
	for i := range 12000 { // as a resolver's questions come from ever other ports
		_, err := conn.WriteToUDPAddrPort([]byte("x"), netip.AddrPortFrom(netip.MustParseAddr("10.9.1.1"), uint16(1024+i)))
		must(t, err)
	}
	kept := netip.MustParseAddr("10.9.7.7") // comes to this NIC by a later move
	grows("after many flows", "far0", firstMAC, kept)
	grows("the first one again", "far0", firstMAC, oldV4.Addr())

	const plugged, later = "52:54:00:00:09:0c", "10.9.8.8"
	if out, err := exec.Command("/bin/sh", "-c", "ip link add nic2 address "+plugged+" type veth peer name far2 && ip link set far2 up && ip link set nic2 up").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	defer exec.Command("ip", "link", "del", "nic2").Run()
	ready := configureNext()
	ready.MAC = plugged
	raw, err := json.Marshal(ready)
	must(t, err)
	_, err = n.makeReady(t.Context(), "", raw)
	must(t, err)
	grows("on a NIC that was plugged in", "far2", plugged, netip.MustParseAddr(later))
}

// TestCountersTellTheirStart: counts of a program that was started again are told from those of the one before.
func TestCountersTellTheirStart(t *testing.T) {
	start := func(n *node) uint64 {
		t.Helper()
		c, err := n.counters(t.Context(), struct{}{})
		must(t, err)
		return c.(guest.Counters).Start
	}
	first, second := newNode(&family{}), newNode(&family{})
	if a, b := start(first), start(second); a == 0 || b == 0 || a == b || start(first) != a {
		t.Errorf("starts %d, %d, and the first again %d", a, b, start(first))
	}
}

// TestUncountedDatagramsAreTold: a guest whose kernel cannot count them says so with what uses an address, for as long
// as that is so; a NIC that went as it was to be counted on is no matter.
func TestUncountedDatagramsAreTold(t *testing.T) {
	makeNICs(t)
	open := openMeter
	t.Cleanup(func() { openMeter = open })
	said := func(n *node) string {
		t.Helper()
		users, err := n.users(t.Context(), addrsParam{Addrs: []netip.Addr{oldV4.Addr()}})
		must(t, err)
		return users.(guest.Users).Uncounted
	}
	openMeter = func(device string) (*meter.Meter, error) {
		return nil, fmt.Errorf("open meter on %s: %w", device, unix.EPERM)
	}
	n := newNode(&family{})
	contains(t, "by a kernel that cannot", said(n), "operation not permitted")
	openMeter = func(device string) (*meter.Meter, error) {
		if device == "nic0" {
			must(t, exec.Command("ip", "link", "del", "nic0").Run())
			return nil, fmt.Errorf("open meter on nic0: %w", unix.ENODEV)
		}
		return open(device)
	}
	n.meters.watchAll()
	want(t, "with a NIC that went meanwhile", said(n), "")
	must(t, exec.Command("ip", "link", "add", "nic0", "type", "veth", "peer", "name", "far0").Run())
	for nic, opened := range n.meters.devices {
		if n.meters.names[nic] == "nic1" {
			must(t, opened.Close())
		}
	}
	contains(t, "by a kernel that does not tell what it has counted", said(n), "read meter on nic1")
	for _, opened := range n.meters.devices {
		must(t, opened.Close())
	}
}
