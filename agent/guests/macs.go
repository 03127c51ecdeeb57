package guests

import (
	"fmt"
	"slices"

	"godwit/agent/config"
	"godwit/migration"
)

// MACsFree says that no other guest here, or on its way, has a NIC of the same MAC as the one that is to come: the
// bridge would give each what is sent to the other. Hypervisors give all guests one where nobody names any.
func (s *Set) MACsFree(d config.Description) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.areMACsFree(d)
}

func (s *Set) areMACsFree(d config.Description) (err error) {
	s.any(func(g *Guest) bool {
		for _, n := range g.held.Description.NICs {
			has := func(o config.NIC) bool { return len(n.Hardware()) > 0 && slices.Equal(n.Hardware(), o.Hardware()) }
			if g.Name() != d.Name && slices.ContainsFunc(d.NICs, has) {
				err = &migration.Problem{Code: migration.CodeGuest, Text: fmt.Sprintf(
					"guest %s: guest %s, which is on this host, or on its way here or away, has a NIC of the same MAC %s; give one of them another", d.Name, g.Name(), n.MAC)}
			}
		}
		return err != nil
	})
	return err
}
