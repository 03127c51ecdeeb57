package uplinks

import (
	"slices"

	"godwit/agent/config"
	"godwit/agent/peer"
	"godwit/netstate/meter"
)

// Meters count what this host sends by its uplinks, as it is on the wire. A nil one counts nothing.
type Meters struct {
	uplinks  []config.Uplink
	byDevice map[string]*meter.Meter
	warn     func(msg string, args ...any)
}

// OpenMeters begins to count. What cannot be counted is told to warn, as what cannot be read later.
func OpenMeters(uplinks []config.Uplink, warn func(msg string, args ...any)) *Meters {
	m := &Meters{uplinks: uplinks, byDevice: map[string]*meter.Meter{}, warn: warn}
	for _, u := range uplinks {
		if u.Device == "" || m.byDevice[u.Device] != nil { // two uplinks may be of one device, such as by IPv4 and by IPv6
			continue
		}
		counts, err := meter.OpenRecent(u.Device)
		if err != nil {
			warn("wire bytes are not counted", "uplink", u.Name, "error", err)
			continue
		}
		m.byDevice[u.Device] = counts
	}
	return m
}

// Close counts no more.
func (m *Meters) Close() {
	for _, counts := range m.byDevice {
		counts.Close()
	}
}

// Sent is what meters have counted, IP bytes by path.
type Sent struct {
	tunnels map[string]int64 // by the tunnels for memory, which no other migration has
	rest    map[string]int64 // by what migrations to the same host do not tell apart
}

// Sent reads the meters: what was sent over paths so far. Of UDP only what tunnels to those ports carry
// counts: the rest are guests' packets.
func (m *Meters) Sent(paths []peer.Path, tunnels []uint16) *Sent {
	out := &Sent{map[string]int64{}, map[string]int64{}}
	if m == nil {
		return out
	}
	for _, u := range m.uplinks {
		counted := m.byDevice[u.Device]
		if counted == nil {
			continue
		}
		counts, err := counted.Read()
		if err != nil {
			m.warn("read meter", "uplink", u.Name, "error", err)
			continue
		}
		for key, count := range counts {
			if !key.Out || key.Src != u.Address || key.Proto == protoUDP && !slices.Contains(tunnels, key.Port) {
				continue
			}
			sum := out.rest
			if key.Proto == protoUDP {
				sum = out.tunnels
			}
			for _, p := range paths {
				if key.Src == p.Local && key.Dst == p.Remote {
					sum[p.Name] += int64(count.Bytes)
				}
			}
		}
	}
	return out
}

// protoUDP: tunnels travel in UDP.
const protoUDP = 17
