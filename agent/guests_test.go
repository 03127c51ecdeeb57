package agent

import (
	"testing"

	"godwit/migration"
)

// TestOneGuestOfAName: of two guests of one name that are started or received at the same time
// the second is refused before anything is made, as it would have the same directory.
func TestOneGuestOfAName(t *testing.T) {
	a := bareAgent(t, &Config{Host: "rome"})
	named := func(name string) *Guest { return &Guest{Held: Held{Description: Description{Name: name}}} }
	first, second, other := named("web"), named("web"), named("db")
	if err := a.guests.expect(first); err != nil {
		t.Fatal(err)
	}
	refused(t, "while the first is started", a.guests.expect(second), migration.CodeBusy, "web")
	if err := a.guests.expect(other); err != nil || other.Held.Number == first.Held.Number {
		t.Errorf("%v, number %d", err, other.Held.Number)
	}
	if err := a.guests.keep(first); err != nil {
		t.Fatal(err)
	}
	refused(t, "while the first is here", a.guests.expect(second), migration.CodeBusy, "web")
	if err := a.guests.forget(first); err != nil {
		t.Fatal(err)
	}
	if err := a.guests.expect(second); err != nil {
		t.Error(err)
	}
	m := &incoming{a: a, plan: migration.Plan{ID: "m-00000001", Guest: "web", Epoch: 2}, rec: newRecord("rome", migration.Plan{}, a.clock()), work: &destinationWork{}}
	m.work.preparation.Description.Name = "web"
	a.ctx = t.Context()
	refused(t, "received", m.receive(t.Context()), migration.CodeBusy, "web")
	if m.work.guest != nil {
		t.Error("there is something to undo of it")
	}
}
