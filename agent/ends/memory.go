package ends

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"path/filepath"
	"strings"

	"godwit/agent/config"
	"godwit/agent/peer"
	"godwit/agent/statefile"
	"godwit/agent/talk"
	"godwit/migration"
	"godwit/netstate/tunnel"
)

// memoryName is the device of path number k; at most 15 characters.
func memoryName(id string, k int) string {
	return fmt.Sprintf("gwm%d-%s", k, strings.TrimPrefix(id, "m-"))
}

// LeastMemoryMTU and MostMemoryMTU bound the MTUs of tunnels for memory, bytes: what every path
// carries (1280, RFC 8200 §5) and 9000, each less WireGuard's 80.
const LeastMemoryMTU, MostMemoryMTU = 1200, 8920

// OfferMemory makes this host's end of a tunnel for each path, with an MTU of mtus: what the other
// host is told of it, and its configuration. asked is what the other host has told of its ends, nil
// where it is still to be asked; there, the prefixes that its inner addresses must not be of.
func OfferMemory(c *config.Config, id string, paths []peer.Path, mtus []int, asked []talk.PathTunnel, there []netip.Prefix) ([]talk.PathTunnel, []tunnel.Config, error) {
	if len(mtus) != len(paths) {
		return nil, nil, &migration.Problem{Code: migration.CodePath, Text: fmt.Sprintf(
			"tunnels for memory: %d paths here, %d there; do both hosts' configurations name the same uplinks?", len(paths), len(mtus))}
	}
	var offers []talk.PathTunnel
	var configs []tunnel.Config
	for k, p := range paths {
		private, public, err := tunnel.NewKey()
		if err != nil {
			return nil, nil, err
		}
		end, err := New(c, id, tunnel.WireGuard, p.Local, private)
		if asked != nil {
			end, err = Answering(c, id, tunnel.WireGuard, p.Local, asked[k].End, private, there)
		}
		if err != nil {
			return nil, nil, err
		}
		end.Name, end.MTU = memoryName(id, k), min(max(mtus[k], LeastMemoryMTU), MostMemoryMTU)
		offers = append(offers, talk.PathTunnel{Key: public, End: end.Local, MTU: end.MTU})
		configs = append(configs, end)
	}
	return offers, configs, nil
}

// RaiseMemory brings the tunnels up towards what the peer offered.
func RaiseMemory(ctx context.Context, configs []tunnel.Config, peers []talk.PathTunnel) ([]*tunnel.Tunnel, error) {
	if len(configs) != len(peers) {
		return nil, &migration.Problem{Code: migration.CodePath, Text: fmt.Sprintf(
			"tunnels for memory: %d here, %d there; do both hosts' configurations name the same uplinks?", len(configs), len(peers))}
	}
	var out []*tunnel.Tunnel
	for i := range configs {
		key, err := tunnel.ParseKey(peers[i].Key)
		if err != nil {
			return out, &migration.Problem{Code: migration.CodeUsage, Text: "tunnel for memory: its key is not one"}
		}
		configs[i].PeerKey, configs[i].Remote = key, peers[i].End
		t, err := Up(ctx, configs[i])
		if err != nil {
			return out, err
		}
		out = append(out, t)
	}
	return out, nil
}

// DropMemory ends what RaiseMemory made for id, by name.
func DropMemory(ctx context.Context, c *config.Config, id string) error {
	found, err := tunnel.Found(ctx, Dir(c))
	if err != nil {
		return err
	}
	mark := "-" + strings.TrimPrefix(id, "m-")
	for _, t := range found {
		if strings.HasPrefix(t.Name, "gwm") && strings.HasSuffix(t.Name, mark) {
			err = errors.Join(err, tunnel.Down(ctx, Dir(c), t.Name))
		}
	}
	return err
}

// ExtendMemory keeps the leases of tunnels for memory ahead, of migrations that are under
// way: a large guest's copy may take longer than any lease. What is not kept is told to warn.
func ExtendMemory(ctx context.Context, c *config.Config, underWay func(id string) bool, warn func(msg string, args ...any)) {
	for _, socket := range statefile.Matching(Dir(c), "gwm*.sock") {
		name := strings.TrimSuffix(filepath.Base(socket), ".sock")
		if _, id, _ := strings.Cut(name, "-"); !underWay("m-" + id) {
			continue
		}
		t, err := tunnel.Attach(ctx, Dir(c), name)
		if err == nil && Short(t.Lease) {
			err = t.Extend(ctx, Lease())
		}
		if err != nil {
			warn("extend tunnel for memory", "tunnel", name, "error", err)
		}
	}
}
