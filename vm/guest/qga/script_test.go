package qga

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"godwit/vm/guest"
)

// TestScriptsAreTyped: nothing that another host wrote is carried out in the guest: an address's zone may be any text.
func TestScriptsAreTyped(t *testing.T) {
	const mac = "52:54:00:00:00:0a"
	evil := netip.MustParseAddr("fe80::1").WithZone("$(reboot)")
	addrs := []netip.Addr{evil}
	configure, err := configureScript(guest.Configure{MAC: mac, Table: 1, Endpoint: 1, Main: true, GatewayV6: evil,
		Addrs: []netip.Prefix{netip.PrefixFrom(evil, 64)}})
	if err != nil {
		t.Fatal(err)
	}
	retire, err := retireScript(guest.Retire{MAC: mac, NewMAC: mac, Addrs: addrs, Keep: true, KeepGatewayV6: evil}, nil, time.Second)
	if err != nil {
		t.Fatal(err)
	}
	gone, err := retireScript(guest.Retire{MAC: mac, Addrs: addrs}, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	for name, script := range map[string]string{"configure": configure, "retire": retire, "retire for good": gone, "drop": dropScript(addrs)} {
		if strings.Contains(script, "reboot") || !strings.Contains(script, "fe80::1") {
			t.Errorf("%s: %s", name, script)
		}
	}
}
