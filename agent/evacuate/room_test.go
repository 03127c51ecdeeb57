package evacuate

import (
	"fmt"
	"strings"
	"testing"

	"godwit/migration"
)

// TestAskedAgainForRoom: guests that a host refuses for want of room while others come to it, such as for the copies of
// their memory, are asked for again when these are there; those of which none finds room any more are refused.
func TestAskedAgainForRoom(t *testing.T) {
	no := refusal(migration.CodeCapacity, "no room")
	for name, c := range map[string]struct {
		room  int               // for so many of the guests in all
		early migration.Outcome // of those that there is none for now
		want  string
		asked int
	}{
		"as it is free again":          {3, migration.Refused, "x→b completed\ny→b completed\nz→b completed", 6},
		"in prepare":                   {3, migration.Aborted, "x→b completed\ny→b completed\nz→b completed", 6},
		"there is none for all":        {2, migration.Refused, "x→b completed\ny→b completed\nz→b refused no room", 6},
		"there is none for any of all": {0, migration.Refused, "x→b refused no room\ny→b refused no room\nz→b refused no room", 3},
	} {
		host := &aHost{guests: guests("x", "y", "z")}
		var taken []string // in this round
		moved := 0
		host.ends = func(_, guest string) (migration.Outcome, error) {
			host.mu.Lock()
			defer host.mu.Unlock()
			if len(taken) == 0 && moved < c.room {
				taken, moved = append(taken, guest), moved+1
				return migration.Completed, nil
			}
			return c.early, no
		}
		var told []string
		got, err := Run(t.Context(), host, Request{To: "b", Width: 1, Tell: func(g Guest) {
			if told = append(told, fmt.Sprint(g.Guest, g.Outcome)); g.Outcome == "" && g.Migration == "" && g.To == "" { // it is asked for again
				host.mu.Lock()
				taken = nil
				host.mu.Unlock()
			}
		}})
		if err != nil || words(got) != c.want || len(host.moves) != c.asked || got.OK != (c.room == 3) {
			t.Errorf("%s: ok %v, %v, %d migrations\n%s\nwant\n%s\ntold %s", name, got.OK, err, len(host.moves), words(got), c.want, strings.Join(told, ", "))
		}
	}
}
