package agent

import (
	"testing"
	"testing/synctest"
	"time"

	"godwit/agent/record"
	"godwit/migration"
)

// TestDoubtIsToldAtOnce: who follows a guest's events hears at once, and once, that it vanished after it had run: it
// was told of its own end before that was taken in, and waits for the next event.
func TestDoubtIsToldAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := waits(t)
		m.state.Landing = migration.Adopting
		m.a.records.Add(m.rec)
		asks := func() (answer record.EventsAnswer, took time.Duration) {
			t.Helper()
			begun, call := time.Now(), callFrom(t, m.plan.From, m.plan.ID, nil)
			call.Form = map[string][]string{"after": {"0"}}
			value, err := m.a.peerEvents(call)
			if answer, ok := value.(record.EventsAnswer); err == nil && ok {
				return answer, time.Since(begun)
			}
			t.Fatalf("%+v, %v", value, err)
			return answer, 0
		}
		if answer, took := asks(); answer.Vanished != "" || took != watchWait {
			t.Errorf("while it runs: %+v after %v", answer, took)
		}
		const later = 2 * time.Second
		vanishes := func() {
			if _, err := m.step(migration.Input{Kind: migration.Vanish, Problem: &migration.Problem{Text: "its QEMU was killed"}}); err != nil {
				t.Error(err)
			}
		}
		time.AfterFunc(later, vanishes)
		if answer, took := asks(); answer.Vanished == "" || took != later {
			t.Errorf("as it vanishes: %+v after %v", answer, took)
		}
		if answer, took := asks(); answer.Vanished == "" || took != watchWait {
			t.Errorf("once that was told: %+v after %v", answer, took)
		}
	})
}
