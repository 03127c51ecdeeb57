package evacuate

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"godwit/agent/record"
	"godwit/migration"
)

// TestLostAnswer: an agent that is started again as it is asked for a migration has begun it, or has not.
func TestLostAnswer(t *testing.T) {
	lost := errors.New("ask agent at /run/godwit/agent.sock: EOF")
	began := &aHost{guests: guests("x")}
	began.migrate = func(guest, to string) error { // it begins, and nobody hears of it
		began.mu.Lock()
		defer began.mu.Unlock()
		began.begin("m-0000000a", guest, "a", to)
		began.guests[0].Migration = "m-0000000a"
		return lost
	}
	known := make(chan struct{})
	began.ends = func(string, string) (migration.Outcome, error) { <-known; return migration.Completed, nil }
	quick := &aHost{guests: guests("x")} // it has left before anybody can look
	quick.migrate = func(guest, to string) error {
		quick.mu.Lock()
		defer quick.mu.Unlock()
		quick.begin("m-0000000b", guest, "a", to)
		return lost
	}
	gone := &aHost{guests: guests("x")} // it came by an earlier migration, and its QEMU ended with the agent
	gone.migrate = func(guest, _ string) error {
		gone.mu.Lock()
		defer gone.mu.Unlock()
		gone.moves = map[string]*aMove{"m-0000000c": {record.Report{ID: "m-0000000c", Guest: guest, From: "b", To: "a", Requested: 1, Outcome: migration.Completed}, make(chan struct{}), time.Time{}}}
		gone.guests = nil
		return lost
	}
	if got, err := Run(t.Context(), gone, Request{To: "b"}); err != nil || got.OK || got.Guests[0].Moved() {
		t.Errorf("it is gone, and nobody moved it: %+v, %v", got, err)
	}
	times := 0
	again := &aHost{guests: guests("x")}
	again.migrate = func(string, string) error {
		if times++; times > 1 {
			return nil
		}
		return lost
	}
	for name, host := range map[string]*aHost{"it had begun": began, "it had not": again, "it was over": quick} {
		got, err := Run(t.Context(), host, Request{To: "b", Tell: func(g Guest) {
			if g.Migration == "m-0000000a" && g.Outcome == "" && g.Phase == "" {
				close(known)
			}
		}})
		if err != nil || !got.OK || words(got) != "x→b completed" || len(host.moves) != 1 {
			t.Errorf("%s: %+v, %v, %d migrations", name, got, err, len(host.moves))
		}
	}
}

func TestRun(t *testing.T) {
	cannot := func(guest, to string) (record.Report, error) {
		return record.Report{}, refusal(migration.CodeGuest, "guest "+guest+" cannot move")
	}
	for name, c := range map[string]struct {
		host *aHost
		req  Request
		ok   bool
		want string
	}{
		"no guests":                   {&aHost{}, Request{}, true, ""},
		"all move, shared out":        {&aHost{guests: guests("x", "y", "z")}, Request{}, true, "x→b completed\ny→c completed\nz→d completed"},
		"to a site":                   {&aHost{guests: guests("x", "y")}, Request{To: "near"}, true, "x→d completed\ny→d completed"},
		"to a host":                   {&aHost{guests: guests("x", "y")}, Request{To: "c"}, true, "x→c completed\ny→c completed"},
		"a dry run":                   {&aHost{guests: guests("x")}, Request{DryRun: true}, true, "x→b"},
		"a dry run that would not do": {&aHost{guests: guests("x"), plan: cannot}, Request{DryRun: true}, false, "x→ guest x cannot move"},
		"nothing takes it, the other moves": {&aHost{guests: guests("x", "y"), plan: func(guest, to string) (record.Report, error) {
			if guest == "x" {
				return cannot(guest, to)
			}
			return record.Report{Predicted: &record.Prediction{}}, nil
		}}, Request{}, false, "x→ guest x cannot move\ny→b completed"},
		"memory for one only": {&aHost{guests: guests("x", "y"), plan: func(string, string) (record.Report, error) {
			free := int64(3 << 29)
			return record.Report{Free: &free}, nil
		}}, Request{To: "b"}, false, "x→b completed\ny→ no memory is left for it beside the other guests (b); free some, or name another destination"},
		"refused there, taken elsewhere": {&aHost{guests: guests("x"), migrate: func(_, to string) error {
			if to != "d" {
				return refusal(migration.CodeBusy, to+" is busy")
			}
			return nil
		}}, Request{}, true, "x→d completed"},
		"refused everywhere": {&aHost{guests: guests("x"), migrate: func(_, to string) error { return refusal(migration.CodeBusy, to+" is busy") }},
			Request{}, false, "x→d refused d is busy"},
		"aborted: nothing else is tried": {&aHost{guests: guests("x"), ends: func(string, string) (migration.Outcome, error) {
			return migration.Aborted, fmt.Errorf("aborted on request")
		}}, Request{}, false, "x→b aborted aborted on request"},
		"in doubt": {&aHost{guests: guests("x"), ends: func(string, string) (migration.Outcome, error) { return migration.InDoubt, nil }},
			Request{}, false, "x→b in_doubt in doubt whether it runs on b; see `godwit recover m-00000001`"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c.req.Width = 2
			got, err := Run(t.Context(), c.host, c.req)
			if err != nil || got.OK != c.ok || words(got) != c.want {
				t.Errorf("ok %v, %v\n%s\nwant %v\n%s", got.OK, err, words(got), c.ok, c.want)
			}
			if c.req.DryRun && len(c.host.moves) > 0 {
				t.Errorf("a dry run moved %d guests", len(c.host.moves))
			}
			if c.host.most > 2 {
				t.Errorf("%d moved at once", c.host.most)
			}
		})
	}
}

// TestCameBack: a guest that somebody has brought back meanwhile, such as by the evacuation of the host that it went
// to, is not away.
func TestCameBack(t *testing.T) {
	host := &aHost{guests: guests("x", "y")}
	host.ends = func(_, guest string) (migration.Outcome, error) {
		if guest == "y" {
			host.mu.Lock()
			defer host.mu.Unlock()
			host.guests = append(host.guests, guests("x")...)
		}
		return migration.Completed, nil
	}
	got, err := Run(t.Context(), host, Request{To: "b", Width: 1})
	if want := "x→b it has moved there, and is on a again: somebody has brought it back, such as an evacuation of b\ny→b completed"; err != nil || got.OK || words(got) != want || len(host.moves) != 2 {
		t.Errorf("ok %v, %v, %d migrations\n%s\nwant\n%s", got.OK, err, len(host.moves), words(got), want)
	}
}

// TestRefusalsAreTold: each host that refuses is said with its reason, and what the next one is asked
// for is no part of that. What the source itself refuses, or somebody, no other host is asked for.
func TestRefusalsAreTold(t *testing.T) {
	const begins = "x→b\nx→b m-00000001\nx→b m-00000001 check"
	next := func(n int) string {
		return fmt.Sprintf("\nx→c\nx→c m-%08[1]d\nx→c m-%08[1]d check\nx→c m-%08[1]d check completed", n)
	}
	for name, c := range map[string]struct {
		code  migration.Code
		early bool // as it is asked for, and not in its check
		want  string
	}{
		"by a destination":          {migration.CodeCapacity, false, begins + "\nx→b m-00000001 check refused no" + next(2)},
		"by a destination, at once": {migration.CodeBusy, true, "x→b\nx→b refused no" + next(1)},
		"for the path to that host": {migration.CodePath, true, "x→b\nx→b refused no" + next(1)},
		"by a hook":                 {migration.CodeHook, false, begins + "\nx→b m-00000001 check refused no"},
		"as the guest cannot":       {migration.CodeGuest, false, begins + "\nx→b m-00000001 check refused no"},
		"by a person":               {migration.CodeAsked, false, begins + "\nx→b m-00000001 check refused no"},
		"as there is no such guest": {migration.CodeUnknownGuest, true, "x→b\nx→b refused no"},
	} {
		t.Run(name, func(t *testing.T) {
			host, asked := &aHost{guests: guests("x")}, 0
			no := refusal(c.code, "no")
			if c.early {
				host.migrate = func(string, string) error {
					if asked++; asked == 1 {
						return no
					}
					return nil
				}
			} else {
				host.ends = func(id, _ string) (migration.Outcome, error) {
					if id == "m-00000001" {
						return migration.Refused, no
					}
					return migration.Completed, nil
				}
			}
			var told []string
			_, err := Run(t.Context(), host, Request{To: "far", Width: 1, Tell: func(g Guest) {
				told = append(told, strings.Join(strings.Fields(fmt.Sprintf("%s→%s %s %s %s %s", g.Guest, g.To, g.Migration, g.Phase, g.Outcome, g.Reason)), " "))
			}})
			if got := strings.Join(told, "\n"); err != nil || got != c.want {
				t.Errorf("%v\n%s\nwant\n%s", err, got, c.want)
			}
		})
	}
}

func TestWrongDestinations(t *testing.T) {
	host := &aHost{guests: guests("x")}
	for to, want := range map[string]string{"here": "already", "a": "already", "e": "known: b, c, d"} {
		if _, err := Run(t.Context(), host, Request{To: to, Width: 1}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q in it", to, err, want)
		}
	}
	if len(host.plans) > 0 {
		t.Errorf("asked %v", host.plans)
	}
}

// A host that does not answer is waited for once, not by every guest.
func TestASilentHostIsAskedOnce(t *testing.T) {
	host := &aHost{guests: guests("x", "y", "z"), plan: func(_, to string) (record.Report, error) {
		if to != "c" {
			return record.Report{}, refusal(migration.CodePeer, "host "+to+" does not answer")
		}
		return record.Report{Predicted: &record.Prediction{}}, nil
	}}
	got, err := Run(t.Context(), host, Request{Width: 1})
	if want := "x→c completed\ny→c completed\nz→c completed"; err != nil || words(got) != want {
		t.Errorf("%v\n%s\nwant\n%s", err, words(got), want)
	}
	if want := []string{"x→b", "x→c", "x→d", "y→c", "z→c"}; !slices.Equal(host.plans, want) {
		t.Errorf("asked %v, want %v", host.plans, want)
	}
}

// When ctx ends nothing more begins, and what runs is named.
func TestInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	stay := make(chan struct{})
	t.Cleanup(func() { close(stay) })
	host := &aHost{guests: guests("x", "y", "z"), ends: func(string, string) (migration.Outcome, error) {
		<-stay
		return migration.Completed, nil
	}}
	begun := 0
	got, err := Run(ctx, host, Request{To: "b", Width: 2, Tell: func(g Guest) {
		if g.Phase == migration.Check {
			if begun++; begun == 2 {
				cancel()
			}
		}
	}})
	if err != nil || got.OK || len(host.moves) != 2 {
		t.Errorf("ok %v, %d of 2 began, %v", got.OK, len(host.moves), err)
	}
	for i, want := range []string{"still runs; `godwit watch m-0000000", "still runs; `godwit watch m-0000000", "interrupted before its migration began"} {
		if g := got.Guests[i]; !strings.Contains(g.Reason, want) || g.Outcome != "" {
			t.Errorf("%+v: want %q as its reason", g, want)
		}
	}
}

// TestBandwidthIsShared: the bandwidth is of all together: two share it, and the last has it alone.
func TestBandwidthIsShared(t *testing.T) {
	second, both := make(chan struct{}), make(chan struct{})
	host := &aHost{guests: guests("x", "y")}
	host.ends = func(id, _ string) (migration.Outcome, error) {
		if id == "m-00000002" {
			close(both)
			<-second
		}
		<-both
		return migration.Completed, nil
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for range 1000 { // until the second has been told of its new limit
			host.mu.Lock()
			told := slices.Contains(host.limits, "m-00000002 100000")
			host.mu.Unlock()
			if told {
				break
			}
			time.Sleep(5 * time.Millisecond)
		}
		close(second)
	}()
	if _, err := Run(t.Context(), host, Request{To: "b", Width: 2, Bandwidth: 100_000}); err != nil {
		t.Fatal(err)
	}
	<-done
	for _, want := range []string{"m-00000001 50000", "m-00000002 50000", "m-00000002 100000"} {
		if !slices.Contains(host.limits, want) {
			t.Errorf("limits %v, want %s", host.limits, want)
		}
	}
}
