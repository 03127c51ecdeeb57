package main

import (
	"cmp"
	"fmt"
	"io"
	"strings"
	"time"

	"godwit/agent/api"
	"godwit/internal/clock"
	"godwit/netstate"
	"godwit/netstate/tunnel"
)

// printUses prints what uses a host's tunnels.
func printUses(w io.Writer, all []api.TunnelUse) {
	if len(all) == 0 {
		fmt.Fprintln(w, "no guest's addresses take a tunnel")
	}
	for _, use := range all {
		var addrs []string
		for _, a := range use.Addresses {
			addrs = append(addrs, a.String())
		}
		lease := ""
		if !use.Until.IsZero() {
			lease = fmt.Sprintf(", leased for %v", max(clock.Until(use.Until), 0).Round(time.Second)) // it may be days
		}
		fmt.Fprintf(w, "%-16s %s with %s%s\n", use.Guest, strings.Join(addrs, " "), strings.Join(use.Peers, ", "), lease)
		printNotLed(w, use.NotLed)
		printFlows(w, use.Flows)
	}
}

// printNotLed says that a guest's addresses do not lead to it any more.
func printNotLed(w io.Writer, why string) {
	if why != "" {
		fmt.Fprintf(w, "  not reached by them: %s\n", why)
	}
}

// printTunnels prints the ends of a guest's tunnels, a line each.
func printTunnels(w io.Writer, tunnels []api.GuestTunnel) {
	for _, t := range tunnels {
		local, remote := t.Local.String(), t.Remote.String()
		if t.Kind == tunnel.GRE || t.Kind == tunnel.IPIP { // these have no ports
			local, remote = t.Local.Addr().String(), t.Remote.Addr().String()
		}
		var addrs []string
		for _, a := range t.Addresses {
			addrs = append(addrs, a.String())
		}
		fmt.Fprintf(w, "  %-9s %-28s %-28s to %s: %s\n", t.Kind, local, remote, t.Peer, cmp.Or(strings.Join(addrs, " "), "nothing"))
		printNotLed(w, t.NotLed)
	}
}

// printFlows prints what took a guest's tunnels lately, a line each.
func printFlows(w io.Writer, flows []netstate.Flow) {
	for _, f := range flows {
		fmt.Fprintf(w, "  %-4s %-28s %-28s %8d packets %12d bytes, idle %v\n", f.Protocol, f.Guest, f.Client, f.Packets, f.Bytes, f.Idle.Round(time.Second))
	}
}
