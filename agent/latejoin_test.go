package agent

import (
	"context"
	"encoding/json"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"godwit/agent/care"
	"godwit/agent/guests"
	"godwit/vm/guest"
)

// TestLateJoins: a guest that is late with its answer is not asked again as long as it tells that it waits; one that
// says nothing is.
func TestLateJoins(t *testing.T) {
	for name, c := range map[string]struct {
		every time.Duration // how often it tells
		want  string
	}{
		"it tells":   {10 * time.Second, ""},
		"it is mute": {20 * time.Second, "limit join of 15s passed"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var server *guest.Server
				server = guest.NewServer(map[string]guest.Handler{"await_join": func(_ context.Context, id string, _ json.RawMessage) (any, error) {
					for range 4 {
						time.Sleep(c.every)
						server.Emit(guest.Event{Name: guest.EventJoin, Call: id, Total: 3, Joined: 2})
					}
					return guest.Joins{Total: 3, Joined: 2, Omitted: 1}, nil
				}})
				near, far := net.Pipe()
				go server.Serve(t.Context(), far, far) //nolint:errcheck // it ends with the test
				channel, err := guest.NewClient(t.Context(), near)
				if err != nil {
					t.Fatal(err)
				}
				defer far.Close()
				defer channel.Close()
				m := landing(t, askedBy(channel, guests.New(care.Held{}, nil)))
				err = m.awaitJoin(t.Context())
				joins := m.work.joins
				if c.want == "" && (err != nil || joins.Total != 3) || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
					t.Errorf("%+v, %v; want %q", joins, err, c.want)
				}
				time.Sleep(4 * c.every) // the guest's own wait ends
			})
		})
	}
}
