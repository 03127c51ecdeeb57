package netstate_test

import (
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"godwit/netstate"
)

// TestFlows: both hosts list what takes the detour, flow by flow, and nft shows the
// same; what the guest's next address has is none of it.
func TestFlows(t *testing.T) {
	w := newWorld(t, "wireguard")
	w.echo("gb")
	w.set("hb", abroad())
	w.set("ha", home(true))
	var conns []net.Conn
	for _, addr := range []netip.Addr{guest4, guest4, guest6} {
		conn := w.dial(addr)
		for range 3 {
			conn.Write([]byte("\xff\xff\xff\xff" + strings.Repeat("x", 100)))
			conn.SetReadDeadline(time.Now().Add(time.Minute))
			if _, err := conn.Read(make([]byte, 2048)); err != nil {
				t.Fatal(err)
			}
		}
		conns = append(conns, conn)
	}
	for h, least := range map[string]uint64{"ha": 3, "hb": 6} { // at home the answers leave by the route alone
		var flows []netstate.Flow
		w.Do(h, func() (err error) { flows, err = netstate.Flows("web"); return err })
		if len(flows) != len(conns) {
			t.Fatalf("%s: flows %+v, want %d", h, flows, len(conns))
		}
		for _, c := range conns {
			client, guest := netip.MustParseAddrPort(c.LocalAddr().String()), netip.MustParseAddrPort(c.RemoteAddr().String())
			i := slices.IndexFunc(flows, func(f netstate.Flow) bool { return f.Client == client })
			if i < 0 || flows[i].Guest != guest || flows[i].Protocol != "udp" || flows[i].Packets != least || flows[i].Bytes < 100*least || flows[i].Idle > 30*time.Second {
				t.Errorf("%s: %v ↔ %v not among %+v, or not with %d packets", h, guest, client, flows, least)
			}
			shown := w.Run(h, "nft", "list", "table", "bridge", "godwit")
			if want := "udp . " + guest.Addr().String() + " . 7007 . " + client.Addr().String(); !strings.Contains(shown, want) {
				t.Errorf("%s: nft does not show %q:\n%s", h, want, shown)
			}
		}
	}
	w.Do("ha", func() error { return netstate.Clear("web") })
	w.Do("ha", func() error {
		flows, err := netstate.Flows("web")
		if len(flows) != 0 {
			t.Errorf("after Clear: %+v", flows)
		}
		return err
	})
}
