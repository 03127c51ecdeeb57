package agent

import (
	"context"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"godwit/agent/care"
	"godwit/agent/config"
	"godwit/agent/detour"
	"godwit/agent/guests"
	"godwit/agent/journal"
	"godwit/agent/record"
	"godwit/agent/talk"
	"godwit/migration"
	"godwit/netstate/hold"
)

// TestHeldPacketsWaitForTheSource: what waits for a guest that was refused here is not sent back before
// the source's abort, as until then the source would return it.
func TestHeldPacketsWaitForTheSource(t *testing.T) {
	m := comes(t, bareAgent(t, &config.Config{Host: "rome"}))
	var err error
	if m.log, err = journal.Create(m.a.config.StatePath("journal"), m.plan.ID); err != nil {
		t.Fatal(err)
	}
	defer m.log.Close()
	m.wake, m.state = make(chan struct{}), migration.Destination{Landing: migration.Waiting, Epoch: 2}
	tell := func(kind migration.InputKind) {
		t.Helper()
		if _, err := m.step(migration.Input{Kind: kind, Problem: &migration.Problem{Text: "broken"}}); err != nil {
			t.Fatal(err)
		}
	}
	tell(migration.Fault)
	back := make(chan struct{})
	go func() {
		m.awaitTurnedBack(context.Background())
		close(back)
	}()
	select {
	case <-back:
		t.Fatal("it did not wait for the source")
	case <-time.After(50 * time.Millisecond):
	}
	tell(migration.AskRefusal) // it has let go, and its packets come here
	select {
	case <-back:
		t.Fatal("it took a question for the source's word")
	case <-time.After(50 * time.Millisecond):
	}
	tell(migration.Abort)
	select {
	case <-back:
	case <-time.After(20 * time.Second):
		t.Error("it waits on after the source's word")
	}
}

// waits is a migration that a source has let go of, whose memory is not all here.
func waits(t *testing.T) *incoming {
	t.Helper()
	m := comes(t, bareAgent(t, &config.Config{Host: "rome"}))
	var err error
	if m.log, err = journal.Create(m.a.config.StatePath("journal"), m.plan.ID); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.log.Close() }) //nolint:errcheck // of a test
	m.wake, m.inbox, m.rec = make(chan struct{}), make(chan migration.Input, 4), record.New("rome", m.plan, time.Now())
	m.state = migration.Destination{Landing: migration.Waiting, Epoch: m.plan.Epoch, Released: true}
	m.a.incoming = map[string]*incoming{m.plan.ID: m}
	return m
}

// TestRefusalIsAnsweredAtOnce: a source that asks for a refusal hears it before what waits here is sent back, which
// waits for the source to turn back; one that has turned back hears when nothing is left.
func TestRefusalIsAnsweredAtOnce(t *testing.T) {
	for name, c := range map[string]struct {
		ask  talk.Undo
		soon bool
	}{
		"it asks":         {talk.Undo{Released: true}, true},
		"it turned back":  {talk.Undo{}, false},
		"it has it again": {talk.Undo{Epoch: 3, Released: true}, false},
	} {
		m := waits(t)
		if c.ask.Epoch == 0 {
			c.ask.Epoch = m.plan.Epoch
		}
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second) // the test's own end
		go func() {
			if _, err := m.step(<-m.inbox); err != nil {
				t.Error(err)
			}
			if !c.soon {
				time.AfterFunc(100*time.Millisecond, cancel)
			}
		}()
		answer, err := m.a.peerAbort(callFrom(t, m.plan.From, m.plan.ID, c.ask).WithContext(ctx))
		soon := ctx.Err() == nil
		cancel()
		if soon != c.soon {
			t.Errorf("%s: answered at once: %v", name, soon)
		}
		if got, ok := answer.(talk.ReleaseAnswer); err != nil || !ok || got.State != "declined" {
			t.Errorf("%s: %+v, %v", name, answer, err)
		}
	}
}

// TestNobodyIsToldOfALostGuest: its source leads nothing here when it says that the guest is lost, and says nothing
// after that.
func TestNobodyIsToldOfALostGuest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := waits(t)
		if _, err := m.step(migration.Input{Kind: migration.Lose, Problem: &migration.Problem{Text: "its pages are nowhere"}}); err != nil {
			t.Fatal(err)
		}
		begun := time.Now()
		if m.awaitTurnedBack(t.Context()); time.Since(begun) > 0 {
			t.Errorf("its source was waited for, for %v", time.Since(begun))
		}
	})
}

// TestNothingGoesBackThatWasNotLed: what waits here where the source had led nothing here was for an address that the guest has not
// yet: it is not sent to a source whose end of the tunnel is gone, and no echo of it is waited for.
func TestNothingGoesBackThatWasNotLed(t *testing.T) {
	for name, c := range map[string]struct{ unled, released, back, earlier bool }{
		"it led nothing":                     {unled: true},
		"it led packets, or does not say":    {back: true},
		"it says so, and had let go of it":   {unled: true, released: true, back: true},
		"it said so of an earlier try, late": {unled: true, earlier: true, back: true},
	} {
		m := waits(t)
		epoch := m.plan.Epoch
		if m.state.Released = c.released; c.earlier {
			epoch--
		}
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second) // the test's own end
		go func() {
			if _, err := m.step(<-m.inbox); (err != nil) != c.earlier {
				t.Error(err)
			}
			cancel() // what is undone is not waited for
		}()
		if _, err := m.a.peerAbort(callFrom(t, m.plan.From, m.plan.ID, talk.Undo{Epoch: epoch, Unled: c.unled}).WithContext(ctx)); err != nil && !c.earlier {
			t.Errorf("%s: %v", name, err)
		}
		cancel()
		tap, end, err := os.Pipe() // it is no tap, and who reads it is told so
		if err != nil {
			t.Fatal(err)
		}
		g := guests.New(care.Held{}, nil)
		g.AddTap("gwt1a", tap)
		err = m.sendHeldBack(t.Context(), g, detour.Detour{})
		if looked := err != nil; looked != c.back {
			t.Errorf("%s: what waits is looked at: %v", name, err)
		}
		tap.Close() //nolint:errcheck // of a test
		end.Close() //nolint:errcheck // the same
	}
}

// TestSourceSaysLaterThatItLedNothing: a source that has not turned back yet may have led packets here; it says so as
// it does.
func TestSourceSaysLaterThatItLedNothing(t *testing.T) {
	frame := make([]byte, hold.HeaderLen+14+20)
	frame[hold.HeaderLen], frame[hold.HeaderLen+12] = 0x52, 8 // to one, by IPv4
	toTheGuest := [][]byte{frame}
	for _, unled := range []bool{true, false} {
		m := waits(t)
		m.state.Released = false
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second) // the test's own end
		ended := make(chan bool, 1)
		go func() { ended <- m.goesBack(ctx, toTheGuest) }()
		go func() {
			if _, err := m.step(<-m.inbox); err != nil {
				t.Error(err)
			}
		}()
		go m.a.peerAbort(callFrom(t, m.plan.From, m.plan.ID, talk.Undo{Epoch: m.plan.Epoch, Unled: unled}).WithContext(ctx)) //nolint:errcheck // what is undone is not waited for
		if back := <-ended; back == unled {
			t.Errorf("it led nothing: %v; what waits goes back: %v", unled, back)
		}
		cancel()
	}
}
