package agent

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/netip"
	"testing"
	"time"

	"godwit/agent/agenttest"
	"godwit/agent/care"
	"godwit/agent/config"
	"godwit/agent/detour"
	"godwit/agent/guests"
	"godwit/agent/peer"
	"godwit/agent/record"
	"godwit/agent/talk"
	"godwit/migration"
)

// TestChannelsOnBothHosts: QEMU waits at the destination for as many channels as the source's opens, however many paths
// there are.
func TestChannelsOnBothHosts(t *testing.T) {
	plan := migration.Plan{ID: "m-00000001", Guest: "web", From: "paris", To: "rome", Transfer: "qemu-multifd", Held: []migration.Address{{Prefix: netip.MustParsePrefix("10.1.1.10/24")}}}
	var asked talk.Preparation
	link := linked(t, "paris", "rome", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked = talk.Preparation{}
		if err := json.NewDecoder(r.Body).Decode(&asked); err != nil {
			t.Error(err)
		}
		peer.Answer(w, nil, &migration.Problem{Code: migration.CodeCapacity, Text: "full"})
	}))
	for paths := 1; paths <= 6; paths++ {
		c := &config.Config{Host: "paris", Peers: []config.Neighbour{{Host: "rome"}}}
		for k := range paths {
			at := func(side int) config.Uplink {
				return config.Uplink{Name: fmt.Sprintf("u%d", k), Address: netip.AddrFrom4([4]byte{127, 0, byte(side), byte(k + 1)}), Carries: "both"}
			}
			c.Uplinks, c.Peers[0].Uplinks = append(c.Uplinks, at(0)), append(c.Peers[0].Uplinks, at(1))
		}
		a := bareAgent(t, c)
		a.detours = detour.New("", config.Network{}, nil)
		m := &outgoing{a: a, guest: guests.New(care.Held{}, nil), plan: plan, link: link, work: &sourceWork{}, rec: record.New("paris", plan, time.Now())}
		agenttest.Refused(t, "prepare", m.prepareThere(t.Context()), migration.CodeCapacity, "full")
		there := &incoming{plan: plan, work: &destinationWork{guest: guests.New(care.Held{}, nil), preparation: asked}}
		here := migrateOptions(plan, channelsOver(plan, len(m.paths(c.Peers[0]))))
		if got := there.options(); got.Channels != here.Channels || here.Channels != min(max(2, paths), 4) {
			t.Errorf("%d paths: %d channels at the source, %d at the destination", paths, here.Channels, got.Channels)
		}
		if paths <= 2 && asked.Channels != 0 { // one of an earlier release does not know the field
			t.Errorf("%d paths: asked for %d channels", paths, asked.Channels)
		}
	}
}
