package agent

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"godwit/agent/care"
	"godwit/agent/config"
	"godwit/agent/guests"
	"godwit/agent/record"
	"godwit/migration"
)

// An error about what is not here says what to do, too.
func TestErrorsSayWhatToDo(t *testing.T) {
	a := &Agent{
		config: &config.Config{Host: "paris", State: t.TempDir()}, outgoing: map[string]*outgoing{}, records: noRecords(&config.Config{Host: "paris"}),
		guests: guests.In(t.TempDir()),
	}
	over := record.New("paris", migration.Plan{ID: "m-00000002"}, time.Now())
	over.End(migration.Completed, nil, time.Now())
	a.records.Add(over)
	underCare(t, a.guests, "web", guests.New(care.Held{}, nil))
	for _, c := range []struct {
		ask  func(*http.Request) (any, error)
		name string
		want string
	}{
		{a.apiBandwidth, "m-00000001", "see `godwit history`"},
		{a.apiAbort, "m-00000001", "abort it on its source"},
		{a.apiAbort, "m-00000002", "it is over, completed"},
		{a.apiReport, "m-00000001", "see `godwit history`"},
		{a.apiEvents, "m-00000001", "see `godwit history`"},
		{a.apiForgetGuest, "web", "also if it was adopted and has come back, and nobody else cares for it; power it off"},
	} {
		r := httptest.NewRequest(http.MethodPost, "/", strings.NewReader(`{"bandwidth": 0}`))
		r.SetPathValue("id", c.name)
		r.SetPathValue("name", c.name)
		if _, err := c.ask(r); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v; want %q", c.name, err, c.want)
		}
	}
}
