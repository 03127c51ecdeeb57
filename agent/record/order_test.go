package record

import (
	"log/slog"
	"slices"
	"testing"
	"time"

	"godwit/internal/clock"
	"godwit/migration"
)

// TestOrderOverAStep: migrations are listed as they began, the last first, though the clock was stepped since by hours
// or years, or was ahead before the host booted.
func TestOrderOverAStep(t *testing.T) {
	s := NewStore("paris", t.TempDir(), slog.New(slog.DiscardHandler))
	const year = 365 * 24 * time.Hour
	for id, then := range map[string]struct {
		boot  string
		ahead time.Duration // the clock, as it went when the migration began
		age   time.Duration
	}{
		"m-00000001": {clock.Boot(), 0, time.Minute},
		"m-00000002": {clock.Boot(), time.Hour, 2 * time.Minute},
		"m-00000003": {clock.Boot(), -50 * year, 3 * time.Minute},
		"m-00000004": {"another", 10 * year, clock.SinceBoot() + time.Minute},
		"m-00000005": {"another", 9 * year, clock.SinceBoot() + 2*time.Minute},
		"m-00000006": {"", 0, clock.SinceBoot() + time.Hour},
	} {
		begun := time.Now().Add(then.ahead - then.age).UnixNano()
		rep := Report{
			ID: id, Guest: "web", Boot: then.boot, Booted: time.Now().Add(then.ahead - clock.SinceBoot()).UnixNano(),
			Requested: begun, Ended: begun + 1e9, Outcome: migration.Completed,
		}
		if err := s.Write(id+".json", func() Report { return rep }); err != nil {
			t.Fatal(err)
		}
	}
	s.Add(New("paris", migration.Plan{ID: "m-00000000"}, time.Now()))
	var got []string
	for _, rep := range s.Reports() {
		got = append(got, rep.ID)
	}
	if want := []string{"m-00000000", "m-00000001", "m-00000002", "m-00000003", "m-00000004", "m-00000005", "m-00000006"}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}
