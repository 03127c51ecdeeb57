package evacuate

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"godwit/migration"
)

// TestClockSetMeanwhile: what became of a guest that somebody else moves is told by the migration that did it, also
// where the host's clock was set right by an hour since; and one of before, which began by a clock that was ahead, is
// none that did.
func TestClockSetMeanwhile(t *testing.T) {
	for name, c := range map[string]struct {
		moved bool
		want  string
	}{
		"moved":     {true, "web→d completed"},
		"let go of": {false, "web→ it is not under care on a any more:"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := &aHost{guests: guests("idle", "web"), ahead: time.Hour}
				h.mu.Lock()
				h.begin("m-0000000o", "old", "a", "c")
				h.moves["m-0000000o"].report.Guest = "web" // which came back since
				h.mu.Unlock()
				synctest.Wait()
				h.guests[1].Migration = "m-0000000p" // a plan
				time.AfterFunc(10*time.Second, func() {
					h.mu.Lock()
					defer h.mu.Unlock()
					h.ahead = 0
					h.guests = nil
					if c.moved {
						h.begin("m-0000000a", "web", "a", "d")
					}
				})
				result, err := Run(t.Context(), h, Request{To: "b", Width: 1})
				if got, want := words(result), "idle→b "+string(migration.Completed)+"\n"+c.want; err != nil || result.OK != c.moved || !strings.HasPrefix(got, want) {
					t.Errorf("ok %v, %v\n%s\nwant\n%s", result.OK, err, got, want)
				}
			})
		})
	}
}
