package qga

import (
	"context"
	"fmt"
	"net/netip"
	"strings"

	"godwit/vm/guest"
)

// listenersScript lists where new clients are taken, one a line: tcp or udp, and the address and port as ss has them.
const listenersScript = `set -e
tcp=$(ss -HOntl)
udp=$(ss -HOnul)
printf '%s\n' "$tcp" | awk 'NF { print "tcp", $4 }'
printf '%s\n' "$udp" | awk 'NF { print "udp", $4 }'`

// Listeners are the guest's that listen on one of addrs, and not on all.
func (c *Client) Listeners(ctx context.Context, addrs ...netip.Addr) (guest.Listeners, error) {
	out, err := c.look(ctx, "list listeners", listenersScript)
	if err != nil {
		return guest.Listeners{}, err
	}
	all, err := parseListeners(out)
	return guest.ListenersAlone(all, addrs), err
}

func parseListeners(out string) (all []guest.Listener, err error) {
	for line := range strings.Lines(out) {
		words := strings.Fields(line)
		if len(words) != 2 || words[0] != guest.KindTCP && words[0] != guest.KindUDP {
			return nil, fmt.Errorf("list listeners: the guest says %.200q", line)
		}
		at := strings.Replace(words[1], "*:", "[::]:", 1) // ss has a star for all of both families
		local, err := endOf(at)
		if local.Addr().IsUnspecified() && strings.Contains(at, "%") {
			continue // it takes clients of one device alone
		}
		if err == nil {
			all = append(all, guest.Listener{Kind: words[0], Local: local})
		}
	}
	return all, nil
}
