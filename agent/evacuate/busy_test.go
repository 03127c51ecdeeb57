package evacuate

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// TestPlannedGuests: a guest of which somebody makes a plan just now, or with which something else is done, is moved when that is over; of one
// with which it is not, that is said.
func TestPlannedGuests(t *testing.T) {
	for over, want := range map[time.Duration]string{10 * time.Second: "web→b completed", time.Hour: "web→ something else is being done with it (m-0000000p)"} {
		synctest.Test(t, func(t *testing.T) {
			h := &aHost{guests: guests("web")}
			h.guests[0].Migration = "m-0000000p"
			end := time.AfterFunc(over, func() {
				h.mu.Lock()
				defer h.mu.Unlock()
				h.guests[0].Migration = ""
			})
			defer end.Stop()
			result, err := Run(t.Context(), h, Request{To: "far", Width: 1})
			if err != nil {
				t.Fatal(err)
			}
			if got := words(result); !strings.HasPrefix(got, want) {
				t.Errorf("%s, want %s", got, want)
			}
		})
	}
}
