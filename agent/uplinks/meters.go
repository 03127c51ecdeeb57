package uplinks

import (
	"slices"
	"sync"

	"godwit/agent/config"
	"godwit/agent/peer"
)

// Meters count what this host sends by its uplinks, as it is on the wire. A nil one counts nothing.
type Meters struct {
	uplinks []config.Uplink
	warn    func(msg string, args ...any)

	mu       sync.Mutex
	byDevice map[string]*counter
}

// OpenMeters begins to count. What cannot be counted is told to warn, as what cannot be read later.
func OpenMeters(uplinks []config.Uplink, warn func(msg string, args ...any)) *Meters {
	m := &Meters{uplinks: uplinks, byDevice: map[string]*counter{}, warn: warn}
	for _, u := range uplinks {
		if u.Device == "" {
			continue
		}
		if m.byDevice[u.Device] == nil {
			m.byDevice[u.Device] = &counter{uplink: u, tried: untried}
			m.byDevice[u.Device].follow(warn)
		}
		c := m.byDevice[u.Device] // two uplinks may be of one device, such as by IPv4 and by IPv6
		c.own = append(c.own, u.Address)
	}
	return m
}

// Close counts no more.
func (m *Meters) Close() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, c := range m.byDevice {
		c.close()
	}
}

// Sent is what meters have counted, IP bytes by path.
type Sent struct {
	tunnels map[string]int64 // by the tunnels for memory, which no other migration has
	rest    map[string]int64 // by what migrations to the same host do not tell apart

	uncounted map[string]string // why what takes a path is not counted; of others it is
}

// Sent reads the meters: what was sent over paths so far. Of UDP only what tunnels to those ports carry
// counts: the rest are guests' packets.
func (m *Meters) Sent(paths []peer.Path, tunnels []uint16) *Sent {
	out := &Sent{map[string]int64{}, map[string]int64{}, map[string]string{}}
	if m == nil {
		return out
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, u := range m.uplinks {
		c := m.byDevice[u.Device]
		if c == nil {
			out.not(u, paths, "the configuration names no device of it")
			continue
		}
		c.follow(m.warn)
		if c.unable != "" {
			out.not(u, paths, c.unable)
		}
		counts, err := c.sent()
		if err != nil {
			m.warn("read meter", "uplink", u.Name, "error", err)
			continue
		}
		for key, bytes := range counts {
			if key.Src != u.Address || key.Proto == protoUDP && !slices.Contains(tunnels, key.Port) {
				continue
			}
			sum := out.rest
			if key.Proto == protoUDP {
				sum = out.tunnels
			}
			for _, p := range paths {
				if key.Src == p.Local && key.Dst == p.Remote {
					sum[p.Name] += bytes
				}
			}
		}
	}
	return out
}

// not notes why what leaves by an uplink is not counted.
func (s *Sent) not(u config.Uplink, paths []peer.Path, why string) {
	for _, p := range paths {
		if p.Local == u.Address {
			s.uncounted[p.Name] = "uplink " + u.Name + ": " + why
		}
	}
}

// protoUDP: tunnels travel in UDP.
const protoUDP = 17
