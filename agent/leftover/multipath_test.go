package leftover

import (
	"errors"
	"net/netip"
	"path/filepath"
	"testing"

	"godwit/agent/journal"
	"godwit/agent/uplinks"
	"godwit/migration"
	"godwit/netstate/mptcp"
)

// TestMultipathOfNoAgent: what a host's MPTCP was told for memory is a migration's while one is under way, and else goes
// without an agent, too. What its operator has set stays.
func TestMultipathOfNoAgent(t *testing.T) {
	h := newHost(t)
	own := mptcp.Limits{Subflows: 3, AddAddrAccepted: 1}
	user := mptcp.Endpoint{ID: 1, Addr: netip.MustParseAddr("10.9.0.77"), Flags: mptcp.FlagSignal}
	killed := &uplinks.Endpoints{Kept: uplinks.KeptIn(h.config.Run)}
	h.do(func() error {
		err := errors.Join(mptcp.SetLimits(own.Subflows, own.AddAddrAccepted), mptcp.AddEndpoint(user))
		if err == nil {
			_, err = killed.Announce([]netip.Addr{netip.MustParseAddr("10.9.0.1")})
		}
		return err
	})
	h.journal("m-0000000b", map[string]any{"side": "source", "plan": migration.Plan{ID: "m-0000000b", Guest: "mover", To: "there"}, "state": map[string]any{"course": "forward"}})
	h.want("left while one is under way", names(h.find(), Thing.Left))
	h.must(journal.Discard(filepath.Join(h.config.State, "journal"), "m-0000000b"))
	const what = "MPTCP endpoint 200, 10.9.0.1; raised limits"
	h.want("left", names(h.find(), Thing.Left), what)
	h.want("removed", names(h.clean(), func(Thing) bool { return true }), what)
	h.want("in the end", names(h.find(), func(Thing) bool { return true }))
	h.do(func() error {
		limits, err := mptcp.ReadLimits()
		known, lerr := mptcp.Endpoints()
		if limits != own || len(known) != 1 || known[0].Addr != user.Addr {
			t.Errorf("limits %+v, endpoints %+v", limits, known)
		}
		return errors.Join(err, lerr)
	})
}
