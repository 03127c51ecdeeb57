package migration

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// steps of a source, as docs/architecture.md tells them: written out again, so that
// a step that moves or loses its undo is seen here.
var wantSteps = []step{
	{Check, CheckHere, ""},
	{Check, CheckThere, ""},
	{Check, AskStart, ""},
	{Prepare, PrepareThere, UndoPrepareThere},
	{Prepare, PrepareHere, UndoPrepareHere},
	{Seed, SeedDisks, UndoSeedDisks},
	{Copy, CopyMemory, UndoCopyMemory},
	{Copy, AskSuspend, ""},
	{Switch, Flip, Unflip},
	{Switch, Pause, Resume},
	{Switch, Release, ""},
	{Handover, AwaitLanding, ""},
	{Settle, CleanSource, ""},
}

var why = &Problem{Code: CodePath, Text: "the path is gone"}

// feed advances s, and fails the test on an error.
func feed(t *testing.T, s Source, in Input) (Source, []Effect) {
	t.Helper()
	next, effects, err := s.Step(in)
	if err != nil {
		t.Fatalf("%s of %q at step %d: %v", in.Kind, in.Effect, s.At, err)
	}
	return next, effects
}

// sourceAt is a source whose step number n has just begun.
func sourceAt(t *testing.T, n int) Source {
	t.Helper()
	s, _ := feed(t, Source{}, Input{Kind: Start})
	for i := range n {
		s, _ = feed(t, s, Input{Kind: Done, Effect: wantSteps[i].do})
	}
	return s
}

func wantEffects(t *testing.T, got []Effect, want ...Effect) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Fatalf("effects %v, want %v", got, want)
	}
}

// refused checks that in is an error that leaves the state as it was.
func refused(t *testing.T, s Source, in Input) {
	t.Helper()
	next, effects, err := s.Step(in)
	if err == nil {
		t.Fatalf("%s of %q at step %d: no error", in.Kind, in.Effect, s.At)
	}
	if diff := cmp.Diff(s, next); diff != "" || effects != nil {
		t.Fatalf("refused input changed the state: %s, effects %v", diff, effects)
	}
}

func TestSourceTopToBottom(t *testing.T) {
	s, effects := feed(t, Source{}, Input{Kind: Start})
	released := false
	for _, want := range wantSteps {
		wantEffects(t, effects, want.do)
		released = released || want.do == Release
		if s.Phase() != want.phase || s.Released() != released || s.Outcome != "" {
			t.Fatalf("at %s: phase %s, released %v, outcome %q", want.do, s.Phase(), s.Released(), s.Outcome)
		}
		s, effects = feed(t, s, Input{Kind: Done, Effect: want.do})
	}
	wantEffects(t, effects)
	if s.Course != Ended || s.Outcome != Completed || !s.Released() || s.Phase() != "" {
		t.Fatalf("at the end: %+v", s)
	}
	for _, kind := range []InputKind{Start, Done, Fault, Abort, NoAnswer, Declined, Restarted} {
		refused(t, s, Input{Kind: kind})
	}
}

// TestSourceTurnsBack breaks a migration at every step before the release.
func TestSourceTurnsBack(t *testing.T) {
	for _, kind := range []InputKind{Fault, Abort, Restarted} {
		for at, broken := range wantSteps[:slices.IndexFunc(wantSteps, isRelease)] {
			t.Run(string(kind)+" at "+string(broken.do), func(t *testing.T) {
				in := Input{Kind: kind, Problem: why}
				if kind == Fault {
					in.Effect = broken.do
				}
				from := sourceAt(t, at)
				from.Tries = triesMost // a restart ends it too
				s, effects := feed(t, from, in)
				checkUndone(t, s, effects, at)
			})
		}
	}
}

// What somebody called off in the check was aborted; refused is what could not be done.
func TestSourceCalledOffInTheCheck(t *testing.T) {
	for kind, want := range map[InputKind]Outcome{Abort: Aborted, Fault: Refused} {
		for n := range 3 {
			s, _ := feed(t, sourceAt(t, n), Input{Kind: kind, Effect: wantSteps[n].do, Problem: why})
			if s.Course != Ended || s.Outcome != want {
				t.Errorf("%s in %s: %s, %s; want %s", kind, wantSteps[n].do, s.Course, s.Outcome, want)
			}
		}
	}
}

// TestSourceBeginsAgain: what an agent's restart broke, or is to be done by other means, and nobody asked to end, is
// begun again with the next right, a few times.
func TestSourceBeginsAgain(t *testing.T) {
	for name, broken := range map[string]Input{"restarted": {Kind: Restarted, Problem: why}, "by other means": {Kind: Fault, Again: true, Problem: why}} {
		t.Run(name, func(t *testing.T) { beginsAgain(t, broken) })
	}
}

func beginsAgain(t *testing.T, broken Input) {
	t.Helper()
	undo := func(s Source, with InputKind) (Source, []Effect) {
		var effects []Effect
		for s.Course == Undoing {
			s, effects = feed(t, s, Input{Kind: with, Effect: s.Undo[0], Problem: why})
		}
		return s, effects
	}
	for at, step := range wantSteps[:slices.IndexFunc(wantSteps, isRelease)] {
		t.Run(string(step.do), func(t *testing.T) {
			s := sourceAt(t, at)
			s.Epoch = 7
			for try := range uint64(triesMost) {
				for range at - s.At { // as far as before
					s, _ = feed(t, s, Input{Kind: Done, Effect: wantSteps[s.At].do})
				}
				turned, effects := feed(t, s, broken)
				if turned.Course == Undoing {
					turned, effects = undo(turned, Done)
				}
				wantEffects(t, effects, CheckHere)
				want := Source{Course: Forward, Epoch: 8 + try, Tries: int(try) + 1, Hooked: at >= 2} //nolint:gosec // two
				if diff := cmp.Diff(want, turned); diff != "" {
					t.Fatal(diff)
				}
				s = turned
			}
			for range at - s.At {
				s, _ = feed(t, s, Input{Kind: Done, Effect: wantSteps[s.At].do})
			}
			s, effects := feed(t, s, broken)
			checkUndone(t, s, effects, at)
		})
	}
	ends := func(name string, s Source) {
		if s.Course != Ended || s.Outcome != Aborted || s.Again {
			t.Errorf("%s: %+v", name, s)
		}
	}
	s, _ := feed(t, sourceAt(t, 5), broken)
	asked, _ := feed(t, s, Input{Kind: Abort, Problem: &Problem{Code: CodeAsked}})
	asked, _ = undo(asked, Done)
	ends("a person aborts on the way back", asked)
	if asked.Problem.Code != CodeAsked {
		t.Errorf("the reason is %v", asked.Problem)
	}
	failed, _ := undo(s, Fault)
	ends("an undo failed", failed)
	gone, _ := feed(t, sourceAt(t, 5), Input{Kind: broken.Kind, Again: broken.Again, Problem: &Problem{Code: CodeGuestGone}})
	gone, _ = undo(gone, Done)
	ends("the guest is gone", gone)
}

// TestSourceHooksWereAsked: what has told hooks that it begins has to tell them that it came to nothing, also where it
// began again since, and its next try ends before it would ask them. One of which they have not heard tells them
// nothing.
func TestSourceHooksWereAsked(t *testing.T) {
	for _, told := range []bool{true, false} {
		for at, step := range wantSteps[:slices.IndexFunc(wantSteps, isRelease)] {
			if told != (at >= 2) { // the third asks
				continue
			}
			s, _ := feed(t, sourceAt(t, at), Input{Kind: Restarted, Problem: why})
			for s.Course == Undoing {
				s, _ = feed(t, s, Input{Kind: Done, Effect: s.Undo[0]})
			}
			if s.Tries != 1 || s.Asked() != told {
				t.Errorf("begun again from %s: %+v, asked %v", step.do, s, s.Asked())
			}
			again, _ := feed(t, s, Input{Kind: Restarted, Problem: why}) // in its check
			for _, in := range []Input{{Kind: Fault, Effect: CheckHere, Problem: why}, {Kind: Abort, Problem: why}} {
				for try, s := range []Source{s, again} {
					if s, _ = feed(t, s, in); s.Course != Ended || s.Asked() != told {
						t.Errorf("from %s, try %d, %s: %s, asked %v", step.do, try+2, in.Kind, s.Course, s.Asked())
					}
				}
			}
		}
	}
}

// TestSourceTakenBack: a person's word gives the guest back, with the next epoch.
func TestSourceTakenBack(t *testing.T) {
	for at, s := range wantSteps {
		in := Input{Kind: TakeBack, Problem: why}
		from := sourceAt(t, at)
		if s.do != Release && s.do != AwaitLanding {
			refused(t, from, in)
			continue
		}
		from.Epoch = 4
		back, effects := feed(t, from, in)
		if !back.Taken || back.Epoch != 5 || back.Released() || !back.MustSync(from) || !from.MustSync(sourceAt(t, 0)) {
			t.Fatalf("%+v", back)
		}
		checkUndone(t, back, effects, at)
	}
}

func isRelease(s step) bool { return s.do == Release }

// checkUndone lets a source undo all that steps 0…at began, through undos that
// fail, aborts that come late and restarts.
func checkUndone(t *testing.T, s Source, effects []Effect, at int) {
	t.Helper()
	var want []Effect
	for _, w := range slices.Backward(wantSteps[:at+1]) {
		if w.undo != "" {
			want = append(want, w.undo)
		}
	}
	if at >= slices.IndexFunc(wantSteps, func(s step) bool { return s.do == Flip }) { // held packets come back by the tunnel
		want = append(want[:len(want)-2], UndoPrepareThere, UndoPrepareHere)
	}
	for i, undo := range want {
		wantEffects(t, effects, undo)
		if s.Course != Undoing || s.Released() {
			t.Fatalf("while %s: %+v", undo, s)
		}
		_, effects = feed(t, s, Input{Kind: Restarted})
		wantEffects(t, effects, undo) // again, whether it had happened or not
		_, effects = feed(t, s, Input{Kind: Abort, Problem: &Problem{Text: "late"}})
		wantEffects(t, effects)
		refused(t, s, Input{Kind: Done, Effect: Release})
		s, effects = feed(t, s, Input{Kind: []InputKind{Done, Fault}[i%2], Effect: undo})
	}
	wantEffects(t, effects)
	outcome := Aborted
	if wantSteps[at].phase == Check && s.Tries == 0 {
		outcome = Refused
	}
	if s.Course != Ended || s.Outcome != outcome || s.Problem != why || s.Released() {
		t.Fatalf("undone: %+v, want %s because of %q", s, outcome, why.Text)
	}
}

func TestSourceGoesOnAfterRelease(t *testing.T) {
	for at := slices.IndexFunc(wantSteps, isRelease); at < len(wantSteps); at++ {
		do := wantSteps[at].do
		t.Run(string(do), func(t *testing.T) {
			s := sourceAt(t, at)
			for _, in := range []Input{{Kind: Fault, Effect: do, Problem: why}, {Kind: Restarted, Problem: why}} {
				next, effects := feed(t, s, in)
				wantEffects(t, effects, do)
				if diff := cmp.Diff(s, next); diff != "" {
					t.Fatalf("%s changed the state: %s", in.Kind, diff)
				}
			}
			refused(t, s, Input{Kind: Abort, Problem: why})
		})
	}
}

func TestSourceAwaitsTheAnswerForItsRelease(t *testing.T) {
	at := slices.IndexFunc(wantSteps, isRelease)
	doubt, effects := feed(t, sourceAt(t, at), Input{Kind: NoAnswer, Effect: Release})
	wantEffects(t, effects, Release)
	if !doubt.InDoubt || !doubt.Released() {
		t.Fatalf("without an answer: %+v", doubt)
	}
	for range 3 { // silence gives nothing back, however long
		doubt, effects = feed(t, doubt, Input{Kind: NoAnswer, Effect: Release})
		wantEffects(t, effects, Release)
	}
	refused(t, doubt, Input{Kind: Abort, Problem: why})

	runs, effects := feed(t, doubt, Input{Kind: Done, Effect: Release})
	wantEffects(t, effects, AwaitLanding)
	if runs.InDoubt {
		t.Fatal("in doubt after the answer")
	}
	back, effects := feed(t, doubt, Input{Kind: Declined, Effect: Release, Problem: why})
	if back.InDoubt || back.Released() {
		t.Fatalf("declined: %+v", back)
	}
	checkUndone(t, back, effects, at)
}

// TestSourceHearsOfTheReleaseOnlyThere: an answer that nobody asked for is an error.
func TestSourceHearsOfTheReleaseOnlyThere(t *testing.T) {
	for at, s := range wantSteps {
		if s.do != Release {
			refused(t, sourceAt(t, at), Input{Kind: NoAnswer})
		}
		if s.do != Release && s.do != AwaitLanding {
			refused(t, sourceAt(t, at), Input{Kind: Declined, Problem: why})
		}
		refused(t, sourceAt(t, at), Input{Kind: Start})
		refused(t, sourceAt(t, at), Input{Kind: "nonsense"})
		refused(t, sourceAt(t, at), Input{Kind: Done, Effect: wantSteps[(at+1)%len(wantSteps)].do})
	}
	refused(t, Source{}, Input{Kind: Done, Effect: CheckHere})
	refused(t, Source{}, Input{Kind: Abort})
}

// TestSourceSyncs: what must be on the disk is that the switch begins, that it is turned back
// from, and that cleaning up begins; what must be written also that the guest is stopped, and let go. See
// docs/ownership.md.
func TestSourceSyncs(t *testing.T) {
	for at := 1; at < len(wantSteps); at++ {
		before, now := sourceAt(t, at-1), sourceAt(t, at)
		sync := wantSteps[at].do == Flip || wantSteps[at].do == CleanSource
		write := wantSteps[at].phase == Switch // a full disk keeps nobody from cleaning up
		if now.MustSync(before) != sync || now.MustWrite(before) != write {
			t.Errorf("%s begins: sync %v, write %v", wantSteps[at].do, now.MustSync(before), now.MustWrite(before))
		}
		if now.Released() {
			continue
		}
		back, _ := feed(t, now, Input{Kind: Abort, Problem: why})
		if back.MustSync(now) != (now.Phase() == Switch) {
			t.Errorf("turned back in %s: sync %v", wantSteps[at].do, back.MustSync(now))
		}
	}
}

// TestSourceLostInTheSwitch: a source that finds its guest gone goes on as if it had let go, from
// when its journal may have lost that record on.
func TestSourceLostInTheSwitch(t *testing.T) {
	for at, s := range wantSteps {
		next, effects := feed(t, sourceAt(t, at), Input{Kind: Restarted, Problem: lost})
		switch {
		case s.phase == Switch:
			wantEffects(t, effects, Release)
			if !next.Released() {
				t.Errorf("lost in %s: %+v", s.do, next)
			}
		case next.Released() != sourceAt(t, at).Released():
			t.Errorf("lost in %s: %+v", s.do, next)
		}
	}
}

// TestSourceSays: what is under way, what was got to and which way it goes, forward, back and at the end.
func TestSourceSays(t *testing.T) {
	if s := (Source{}); s.Doing() != "" || s.Over() || s.LedAway() || s.Asked() {
		t.Errorf("before it begins: %+v", s)
	}
	for at, step := range wantSteps {
		s := sourceAt(t, at)
		if s.Doing() != step.do || s.Reached() != step.do || s.Over() || s.LedAway() != (at >= flip) {
			t.Errorf("%s: doing %s, reached %s, over %v, led away %v", step.do, s.Doing(), s.Reached(), s.Over(), s.LedAway())
		}
		if s.Released() {
			continue
		}
		back, effects := feed(t, s, Input{Kind: Abort, Problem: why})
		for ; back.Course == Undoing; back, effects = feed(t, back, Input{Kind: Done, Effect: back.Doing()}) {
			if len(effects) != 1 || back.Doing() != effects[0] || back.Reached() != step.do || !back.Over() {
				t.Fatalf("%s, back: doing %s, effects %v, over %v", step.do, back.Doing(), effects, back.Over())
			}
		}
		if back.Doing() != "" || !back.Over() || back.Course != Ended {
			t.Errorf("%s, undone: %+v", step.do, back)
		}
	}
}
