package report

import (
	"strings"

	"godwit/lab/scenario"
)

// moved wants each migration that completed to have moved every connection of the lab's
// that can move, and to have lost none: what stays on the tunnel may only be of clients
// that cannot follow (see Follows). One migration at least must be judged.
func (c *checker) moved() {
	judged := false
	for i := range c.r.Migrations {
		m := &c.r.Migrations[i]
		if m.Outcome != Completed {
			continue
		}
		judged = true
		n := m.Connections
		if n == nil {
			c.unmet("connections: of %s are unknown: %s", label(i, m), why(m.WhyNull, "connections"))
			continue
		}
		switch want := n.Total - n.Unable; {
		case n.Lost > 0:
			c.unmet("connections: %s lost %d of %d, expected none", label(i, m), n.Lost, n.Total)
		case n.Total == 0:
			c.unmet("connections: %s had none, expected some that moved", label(i, m))
		case n.Moved < want && n.Unable > 0:
			c.unmet("connections: %s moved %d of %d, expected %d (those of %s cannot)", label(i, m), n.Moved, n.Total, want, strings.Join(c.staying(m.Guest), ", "))
		case n.Moved < want:
			c.unmet("connections: %s moved %d of %d, expected all", label(i, m), n.Moved, n.Total)
		}
	}
	if !judged {
		c.unmet("connections: no migration completed, expected that connections moved")
	}
}

// staying names the flows to a guest whose connections cannot follow it.
// Flows of udp and exec are not among a migration's connections.
func (c *checker) staying(guest string) (flows []string) {
	for _, t := range c.s.Traffic {
		if t.Guest == guest && t.Kind != "udp" && t.Kind != "exec" && !Follows(c.s, t.Client) {
			flows = append(flows, t.Name)
		}
	}
	return flows
}

// Follows says whether a client's connections can follow a guest to its next address: they
// are MPTCP, and its sockets take an address that is announced to them.
func Follows(s *scenario.Scenario, name string) bool {
	for _, client := range s.Clients {
		if client.Name == name {
			return client.MPTCP != "off" && client.AddAddrAccepted > 0
		}
	}
	return false
}
