package hook

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"godwit/migration"
)

func TestSubscriber(t *testing.T) { synctest.Test(t, testSubscriber) }

func testSubscriber(t *testing.T) {
	b := newBench(t, Config{})
	sub := Subscription{Name: "router", Events: []migration.EventName{aCall.Event, migration.TargetResume}, TimeoutMS: 400}
	n, err := b.set.Subscribe(sub)
	if err != nil {
		t.Fatal(err)
	}
	answer := func(a Answer) {
		go func() {
			d := <-n.Calls()
			a.ID = d.ID
			if err := b.set.Answer("router", a); err != nil {
				t.Error(err)
			}
		}()
	}
	answer(Answer{Go: true})
	b.ask("")
	answer(Answer{Why: "no route\nto it"})
	b.ask(migration.CodeHook, "hook router", "it says no: no route to it")
	if b.counted(Refused) != 1 || b.counted(Failed) != 0 {
		t.Errorf("a refusal: %v", b.results)
	}
	b.ask(migration.CodeTimeout, "limit hook_blocking of 400ms passed", "has not answered")
	d := <-n.Calls()
	if over := <-n.Calls(); !over.Over || over.ID != d.ID {
		t.Errorf("%+v after %+v: want word that it is over", over, d)
	}
	if err := b.set.Answer("router", Answer{ID: d.ID, Go: true}); err == nil {
		t.Error("an answer that is too late was taken")
	}
	c := aCall
	c.Event, c.Blocking = migration.TargetResume, false
	b.set.Tell(c)
	if d := <-n.Calls(); d.Call.Event != migration.TargetResume || d.Call.Blocking {
		t.Errorf("%+v", d)
	}
	time.AfterFunc(50*time.Millisecond, n.Close)
	b.ask(migration.CodeHook, "went away")
	b.ask("") // it is no hook any more
}

// TestSubscriberMayBeOptional: its silence does not count, its refusal does.
func TestSubscriberMayBeOptional(t *testing.T) { synctest.Test(t, testOptionalSubscriber) }

func testOptionalSubscriber(t *testing.T) {
	b := newBench(t, Config{})
	n, err := b.set.Subscribe(Subscription{Name: "cache", Events: []migration.EventName{aCall.Event}, TimeoutMS: 200, OnFailure: Continue})
	if err != nil {
		t.Fatal(err)
	}
	b.ask("")
	<-n.Calls()
	<-n.Calls() // it is over
	go func() {
		d := <-n.Calls()
		b.set.Answer("cache", Answer{ID: d.ID, Why: "full"}) //nolint:errcheck // seen by what Ask says
	}()
	b.ask(migration.CodeHook, "full")
}

func TestSubscriptionsThatAreWrong(t *testing.T) {
	b := newBench(t, Config{})
	events := []migration.EventName{aCall.Event}
	if _, err := b.set.Subscribe(Subscription{Name: "a", Events: events}); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		sub  Subscription
		want string
	}{
		{Subscription{Events: events}, "a name"},
		{Subscription{Name: "a\nb", Events: events}, "a name"},
		{Subscription{Name: "a", Events: events}, "already"},
		{Subscription{Name: "b"}, "no events"},
		{Subscription{Name: "b", Events: []migration.EventName{"LUNCH"}}, `"LUNCH" is unknown`},
		{Subscription{Name: "b", Events: events, TimeoutMS: 3600_000}, "between 1ms and 1m0s"},
		{Subscription{Name: "b", Events: events, OnFailure: "panic"}, "abort, continue"},
	} {
		if _, err := b.set.Subscribe(c.sub); err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%+v: %v, want %q", c.sub, err, c.want)
		}
	}
}
