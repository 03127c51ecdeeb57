package qga

import (
	"context"
	"encoding/base64"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"
	"unicode"

	"godwit/vm/guest"
)

// FuzzAgent: whatever an agent in a guest answers, and its programs print there, no more of it is taken than a guest
// may have, and why something cannot be done is one line that can be shown.
func FuzzAgent(f *testing.F) {
	const info = "6.1.0\n0c5e\n12.5\n1\n. eth0/disable_ipv6\n. br0\n. eth1\nadd_addr_accepted 8 subflows 8\n"
	const nics = `[{"name":"eth0","hardware-address":"52:54:00:00:00:01","ip-addresses":[{"ip-address":"10.1.1.5","prefix":24}]}]`
	f.Add(info, nics, "")
	f.Add("ESTAB 10.1.1.5:80 [::ffff:10.1.1.9]:4000 token:1(id:0)/2(id:1) rtt:3.5/1\nudp\nESTAB 10.1.1.5:53 10.1.1.9:1 - -\ntcp\n", nics, "")
	f.Add("eth0 1 2\n", `[{"ip-addresses":[{"ip-address":"::1","prefix":999}],"name":"\u001b","hardware-address":"x"}]`, `{"error":{"desc":"\u001b[2J\n"}}`)
	f.Add(info, strings.Repeat("9", 5000), "\xff\x00{")
	f.Fuzz(func(t *testing.T, printed, nics, instead string) {
		socket := agent(t, func(command string, id int64, out net.Conn) {
			switch {
			case command == "guest-sync-delimited":
				synced(id, out)
			case instead != "" && command != "guest-exec-status": // one that never ends a command is waited for as long as ctx says
				fmt.Fprintln(out, instead)
			case command == "guest-network-get-interfaces":
				fmt.Fprintf(out, `{"return": %s}`+"\n", nics)
			case command == "guest-exec":
				fmt.Fprintln(out, `{"return": {"pid": 7}}`)
			default:
				fmt.Fprintf(out, `{"return": {"exited": true, "exitcode": %d, "out-data": %q}}`+"\n", len(printed)%2, base64.StdEncoding.EncodeToString([]byte(printed)))
			}
		})
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		c, err := Dial(ctx, socket)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		addr := netip.MustParseAddr("10.1.1.5")
		for what, ask := range map[string]func() (any, error){
			"info":        func() (any, error) { r, err := c.Info(ctx); return &r, err },
			"users":       func() (any, error) { r, err := c.Users(ctx, addr); return &r, err },
			"connections": func() (any, error) { r, err := c.Connections(ctx, addr); return &r, err },
			"await_join": func() (any, error) {
				r, err := c.AwaitJoin(ctx, guest.AwaitJoin{Old: []netip.Addr{addr}})
				return &r, err
			},
			"configure": func() (any, error) {
				r, err := c.Configure(ctx, guest.Configure{MAC: "52:54:00:00:00:01", Table: 1, Addrs: []netip.Prefix{netip.PrefixFrom(addr, 24)}})
				return &r, err
			},
			"retire": func() (any, error) {
				return nil, c.Retire(ctx, guest.Retire{MAC: "52:54:00:00:00:01", Addrs: []netip.Addr{addr}})
			},
		} {
			result, err := ask()
			if err == nil {
				err = guest.Bounded(result)
				if err != nil {
					t.Errorf("%s: %v", what, err)
				}
				continue
			}
			if said := err.Error(); len(said) > 4096 || strings.ContainsFunc(said, func(r rune) bool { return !unicode.IsPrint(r) }) {
				t.Errorf("%s: %.5000q", what, said)
			}
			if ctx.Err() != nil {
				t.Fatalf("%s: it did not end", what)
			}

		}
	})
}
