package agent

import (
	"path/filepath"
	"slices"
	"testing"
	"time"

	"godwit/agent/config"
	"godwit/agent/detour"
	"godwit/agent/limits"
	"godwit/transfer/proxy"
)

// TestMemorySettlesBeforeTheFlip: while packets still reach the guest here.
func TestMemorySettlesBeforeTheFlip(t *testing.T) {
	limit := limits.Settle
	limits.Settle.For = 50 * time.Millisecond // no lane works
	t.Cleanup(func() { limits.Settle = limit })
	for _, early := range []bool{false, true} {
		m, _ := budgeted(t, "hybrid", 300*time.Millisecond, 20*time.Millisecond)
		lanes, err := proxy.ListenSource(t.Context(), proxy.SourceConfig{Socket: filepath.Join(t.TempDir(), "out")})
		if err != nil {
			t.Fatal(err)
		}
		m.work.lanes, m.work.early, m.a.detours = lanes, early, detour.New("", config.Network{}, nil)
		m.flip(t.Context()) //nolint:errcheck // there is no detour
		var steps []string
		for _, s := range m.rec.Snapshot().Critical {
			steps = append(steps, s.Name)
		}
		if !slices.Equal(steps, []string{"settle memory", "flip route"}) {
			t.Errorf("early %v: %v", early, steps)
		} else if took := m.rec.Snapshot().Critical[0].MS; took < 50 {
			t.Errorf("early %v: lanes that do not work were waited for for %v ms", early, took)
		}
		lanes.Close() //nolint:errcheck // nothing came
	}
}
