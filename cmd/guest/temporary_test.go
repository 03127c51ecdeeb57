package main

import (
	"net/netip"
	"os/exec"
	"strings"
	"testing"

	"godwit/vm/guest"
)

// TestChannelTellsTemporaryAddresses: those that the guest's kernel makes beside a lasting one (RFC 8981) are told to
// be such.
func TestChannelTellsTemporaryAddresses(t *testing.T) {
	each(t, func(t *testing.T, c guest.Channel) {
		const lasting = "fd00:2:1::99"
		out, err := exec.Command("/bin/sh", "-c", "echo 2 >/proc/sys/net/ipv6/conf/nic0/use_tempaddr && ip link set nic0 up && ip addr add "+lasting+"/64 dev nic0 mngtmpaddr nodad valid_lft 6000 preferred_lft 5000 && ip addr add 10.9.4.4/24 dev nic0 && ip addr add 10.9.4.5/24 dev nic0").CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		info, err := c.Info(t.Context())
		must(t, err)
		for _, n := range info.NICs {
			if !strings.EqualFold(n.MAC, firstMAC) {
				continue
			}
			if len(n.Temporary) != 1 || n.Temporary[0] == netip.MustParseAddr(lasting) || !netip.MustParsePrefix(lasting+"/64").Contains(n.Temporary[0]) {
				t.Errorf("temporary are %v of %v", n.Temporary, n.Addrs)
			}
			return
		}
		t.Errorf("it has no NIC %s: %+v", firstMAC, info.NICs)
	})
}
