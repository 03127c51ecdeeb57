package agent

import (
	"net/http"
	"testing"
	"time"

	"godwit/agent/care"
	"godwit/agent/config"
	"godwit/agent/guests"
	"godwit/agent/peer"
	"godwit/agent/record"
	"godwit/agent/talk"
	"godwit/migration"
)

// TestSkewBy: the answer of a host left there after it was asked for, and before it was heard.
func TestSkewBy(t *testing.T) {
	const ms = time.Millisecond
	at := time.Unix(1000, 0)
	for _, c := range []struct {
		name   string
		before time.Duration
		there  time.Duration // what its clock shows, after at
		took   time.Duration // until it was heard, from at on
		want   time.Duration
	}{
		{"nothing tells them apart", 0, 40 * ms, 100 * ms, 0},
		{"they drifted apart since, unseen", 0, 99 * ms, 100 * ms, 0},
		{"an hour ahead, and check saw it badly", time.Hour + 150*ms, time.Hour + 90*ms, 100 * ms, time.Hour},
		{"an hour behind", -time.Hour, -time.Hour + 90*ms, 100 * ms, -time.Hour},
		{"stepped since", 0, time.Minute + 90*ms, 100 * ms, time.Minute},
		{"stepped back since", 0, -time.Minute + 90*ms, 100 * ms, -time.Minute},
		{"set right since", time.Hour, 90 * ms, 100 * ms, 0},
		{"drifted since", 2 * time.Second, 2*time.Second + 190*ms, 100 * ms, 2*time.Second + 100*ms},
		{"faster than any before", time.Hour, time.Hour + 3*ms, 5 * ms, time.Hour + 3*ms},
	} {
		if got := skewBy(c.before, at.Add(c.there).UnixNano(), at.UnixNano(), at.Add(c.took).UnixNano(), 20*ms); got != c.want {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}

// TestClocksAsTheGuestRuns: by how much the destination's clock is ahead is known from when the guest runs there,
// however long it took to get so far; one that does not say leaves it as it was.
func TestClocksAsTheGuestRuns(t *testing.T) {
	const ahead, since = time.Hour, time.Minute
	plan := migration.Plan{ID: "m-00000001", Guest: "web", From: "paris", To: "rome", Epoch: 2}
	there := &incoming{a: bareAgent(t, &config.Config{Host: "rome"}), rec: record.New("rome", plan, time.Now())}
	for says, want := range map[bool]time.Duration{true: ahead, false: ahead + since} {
		link := linked(t, "paris", "rome", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			answer := there.releaseAnswer(migration.Destination{Landing: migration.Adopting})
			if answer.Now += int64(ahead); !says {
				answer.Now = 0
			}
			peer.Answer(w, answer, nil)
		}))
		m := &outgoing{
			a: bareAgent(t, &config.Config{Host: "paris", Patience: time.Minute}), guest: guests.New(care.Held{}, nil), link: link, plan: plan,
			work: &sourceWork{skew: ahead + since}, rec: record.New("paris", plan, time.Now()),
		}
		m.a.ctx = t.Context()
		if err := m.askRelease(t.Context(), &talk.ReleaseAnswer{}, nil); err != nil {
			t.Fatal(err)
		}
		if off := (m.work.skew - want).Abs(); off > since/2 {
			t.Errorf("says %v: %v, want %v", says, m.work.skew, want)
		}
	}
}
