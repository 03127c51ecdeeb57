package agent

import (
	"fmt"
	"net/http"

	"godwit/agent/api"
	"godwit/agent/peer"
	"godwit/migration"
)

func (a *Agent) apiBandwidth(r *http.Request) (any, error) {
	want := api.Bandwidth{Bandwidth: -1} // who says nothing does not ask for no limit
	if err := peer.DecodeKnown(r, &want); err != nil {
		return nil, err
	}
	id := r.PathValue("id")
	if !migration.SensibleBandwidth(want.Bandwidth) {
		return nil, &migration.Problem{Code: migration.CodeUsage, Text: fmt.Sprintf(
			"limit %s: bandwidth of %d bit/s; at least 8kbit, or 0 for no limit", id, want.Bandwidth)}
	}
	a.mu.Lock()
	m := a.outgoing[id]
	a.mu.Unlock()
	if m == nil {
		return nil, &migration.Problem{Code: migration.CodeUsage, Text: fmt.Sprintf(
			"limit %s: no such migration leaves host %s now; limit it on its source, while it is under way, see `godwit history`", id, a.config.Host)}
	}
	if m.itself != "" {
		return nil, &migration.Problem{Code: migration.CodeUsage, Text: fmt.Sprintf(
			"limit %s: by %s, as with any --insecure-transfer, QEMU sends by itself, and its limit stays; `godwit abort %s`, and begin it again with --bandwidth",
			id, m.itself, id)}
	}
	m.bandwidth.Set(want.Bandwidth)
	note := "bandwidth is not limited any more"
	if want.Bandwidth > 0 {
		note = fmt.Sprintf("bandwidth is limited to %d bit/s now", want.Bandwidth)
	}
	m.rec.Note(note)
	return nil, nil //nolint:nilnil // done
}

// itselfBy is the transfer of a plan with which QEMU sends by itself; "": it does not. What check makes of a plan does
// not change that.
func itselfBy(plan migration.Plan) string {
	if !plan.Direct() {
		return ""
	}
	return plan.Transfer
}
