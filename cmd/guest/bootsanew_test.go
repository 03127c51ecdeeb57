package main

import (
	"net/netip"
	"os/exec"
	"strings"
	"testing"

	"godwit/vm/guest"
)

// configuresItself does what the guest's own services do when it boots: a NIC has the address of the site that it left,
// and the default routes.
func configuresItself(t *testing.T, device string) {
	t.Helper()
	script := `set -e
ip link set ` + device + ` up
ip addr add ` + oldV4.String() + ` dev ` + device + `
ip addr add ` + oldV6.String() + ` dev ` + device + ` nodad
ip route add default via ` + oldGW4.String() + ` dev ` + device + ` metric 100
ip route add default via ` + oldGW6.String() + ` dev ` + device + ` metric 100`
	if out, err := exec.Command("/bin/sh", "-c", script).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
}

// unbound is what the kernel would do with a packet of a socket that is bound to nothing.
func unbound(t *testing.T, to string) string {
	t.Helper()
	out, err := exec.Command("ip", "route", "get", to).CombinedOutput()
	if err != nil {
		return "none: " + string(out)
	}
	return string(out)
}

// TestGivenAgain: a guest that has booted anew, and whose program knows nothing of its NICs, has its next addresses
// after the steps of agent/boots/again.go, however often they are done, and nothing of its own configuration.
func TestGivenAgain(t *testing.T) {
	old := []netip.Addr{oldV4.Addr(), oldV6.Addr()}
	next := configureNext()
	next.Main = true
	for name, c := range map[string]struct {
		device string // that has its own address
		keep   bool
		kept   []string // on the active NIC, beside the next ones
	}{
		"its own address is on the spare NIC":  {device: "nic0"},
		"its own address is on the active NIC": {device: "nic1"},
		"it keeps its own address":             {device: "nic0", keep: true, kept: []string{"10.9.1.10/32", "fd00:9:1::10/128"}},
	} {
		t.Run(name, func(t *testing.T) {
			each(t, func(t *testing.T, ch guest.Channel) {
				configuresItself(t, c.device)
				for range 2 {
					if _, err := ch.Configure(t.Context(), next); err != nil {
						t.Fatal(err)
					}
					if c.device == "nic1" {
						if err := ch.DropAddress(t.Context(), old...); err != nil {
							t.Fatal(err)
						}
						continue
					}
					if err := ch.Retire(t.Context(), guest.Retire{Addrs: old, MAC: firstMAC, NewMAC: secondMAC, Keep: c.keep}); err != nil {
						t.Fatal(err)
					}
				}
				want(t, "spare NIC is up", isUp(t, "nic0"), false)
				want(t, "addresses of the spare NIC", addrsOn(t, "nic0"), []string{})
				want(t, "addresses of the active NIC", len(addrsOn(t, "nic1")), 2+len(c.kept))
				for _, addr := range append(c.kept, nextV4.String(), nextV6.String()) {
					contains(t, "addresses of the active NIC", strings.Join(addrsOn(t, "nic1"), " "), addr)
				}
				contains(t, "unbound IPv4", unbound(t, "10.9.4.4"), "via 10.9.2.1 dev nic1", "src 10.9.2.10")
				contains(t, "unbound IPv6", unbound(t, "fd00:9:4::4"), "via fd00:9:2::1 dev nic1")
				contains(t, "to its own subnet", unbound(t, "10.9.1.77"), "via 10.9.2.1 dev nic1")
			})
		})
	}
}
