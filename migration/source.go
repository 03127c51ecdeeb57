package migration

import (
	"fmt"
	"slices"
)

// Effect is one act on the world. The agent performs it, then feeds Done or Fault
// back. Every effect is idempotent: after a restart it may be performed again.
type Effect string

// Effects of the source, in the order in which a migration performs them.
const (
	CheckHere    Effect = "check_here"    // this host and the guest can do it
	CheckThere   Effect = "check_there"   // the destination can do it; it names the next address
	AskStart     Effect = "ask_start"     // the hooks of PRE_MIGRATION_START say go; nothing was changed yet
	PrepareThere Effect = "prepare_there" // the destination's QEMU waits, tunnel end, routes, redirect and hold stand
	PrepareHere  Effect = "prepare_here"  // this end of the tunnel stands and has been tried
	SeedDisks    Effect = "seed_disks"    // disks are mirrored but for what is being written
	CopyMemory   Effect = "copy_memory"   // what is left fits the downtime budget; QEMU is held off the switchover
	AskSuspend   Effect = "ask_suspend"   // the hooks of PRE_SOURCE_SUSPEND say go, while the guest runs; what is left fits still
	Flip         Effect = "flip"          // packets for the guest go into the tunnel and wait at the destination
	Pause        Effect = "pause"         // the guest executes nothing, its tap is drained; the last of its memory goes
	Release      Effect = "release"       // journal that we have let go, then hand the right over
	AwaitLanding Effect = "await_landing" // the destination has handed the connections over
	CleanSource  Effect = "clean_source"  // the guest's QEMU here is gone, what no lease needs is removed
)

// step is one line of a migration: what is done in which phase, and what undoes it.
type step struct {
	phase Phase
	do    Effect
	undo  Effect // "" where nothing is to be undone
}

// Undoing effects. They hold when nothing of the effect they undo is left.
const (
	UndoPrepareThere Effect = "undo_prepare_there"
	UndoPrepareHere  Effect = "undo_prepare_here"
	UndoSeedDisks    Effect = "undo_seed_disks"
	UndoCopyMemory   Effect = "undo_copy_memory"
	Unflip           Effect = "unflip" // packets that wait at the destination are sent back by undo_prepare_there
	Resume           Effect = "resume" // the guest runs on here
)

// sourceSteps is a migration, top to bottom, as the source performs it.
var sourceSteps = []step{
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

// Indexes of the steps from which on less can be undone.
var (
	flip    = indexOf(sourceSteps, Flip)         // from here on the release may come without another sync, see MustSync
	release = indexOf(sourceSteps, Release)      // from here on only the destination's word, or a person's, gives the guest back
	landing = indexOf(sourceSteps, AwaitLanding) // the last in which a person may take it back
)

// Course is the way a migration is going.
type Course string

// The courses.
const (
	Forward Course = "forward" // towards the destination
	Undoing Course = "undoing" // back to how it was
	Ended   Course = "ended"
)

// Source is the state of a migration at its source. The zero value has not begun.
type Source struct {
	Course  Course   `json:"course"`
	At      int      `json:"at"`               // index of the step being performed
	Undo    []Effect `json:"undo"`             // what is left to undo, next first
	InDoubt bool     `json:"in_doubt"`         // the release was sent and nothing has been heard
	Epoch   uint64   `json:"epoch"`            // of the right: what this migration hands over, or what was taken back
	Taken   bool     `json:"taken"`            // a person took the right back, with this epoch
	Tries   int      `json:"tries"`            // begun again so many times
	Again   bool     `json:"again"`            // begins again when all is undone
	Hooked  bool     `json:"hooked,omitempty"` // an earlier try has asked the hooks of PRE_MIGRATION_START
	Stood   bool     `json:"stood,omitempty"`  // the guest was not stopped by us: it is not run on
	Outcome Outcome  `json:"outcome"`
	Problem *Problem `json:"problem,omitempty"`
}

// Phase is the phase that the migration is in; "" before it begins and after it ended.
func (s Source) Phase() Phase {
	if s.Course != Forward && s.Course != Undoing {
		return ""
	}
	return sourceSteps[s.At].phase
}

// Reached is the step that the migration has got to, also while it is undone.
func (s Source) Reached() Effect { return sourceSteps[s.At].do }

// Asked says whether the hooks of PRE_MIGRATION_START were asked, by whichever try: what ends from then
// on must be told to them.
func (s Source) Asked() bool {
	return s.Hooked || s.Course != "" && s.At >= indexOf(sourceSteps, AskStart)
}

// Doing is the effect under way; "" before the migration begins and after it ended.
func (s Source) Doing() Effect {
	switch {
	case s.Course == Forward:
		return sourceSteps[s.At].do
	case s.Course == Undoing && len(s.Undo) > 0:
		return s.Undo[0]
	}
	return ""
}

// LedAway says whether packets for the guest were led to the destination, where they may wait.
func (s Source) LedAway() bool { return s.Course != "" && s.At >= flip }

// Lost says whether this side knows that the guest is whole nowhere any more.
func (s Source) Lost() bool { return s.Outcome == Failed }

// Over says whether it goes forward no more: it is being undone, or has ended.
func (s Source) Over() bool { return s.Course == Undoing || s.Course == Ended }

// Released says whether the right to run the guest has left this host.
func (s Source) Released() bool {
	return s.Course == Forward && s.At >= release || s.Outcome == Completed
}

// Heard says whether this side knows that the guest has landed: from then on nothing, and no
// person's word, takes it back.
func (s Source) Heard() bool {
	return s.Course == Forward && s.At > landing || s.Outcome == Completed
}

// Switching says whether this side may let go without another sync: it is about to, or has.
func (s Source) Switching() bool {
	return s.Course == Forward && s.At >= flip || s.Outcome == Completed
}

// MustSync says whether this state must be on the disk before anything is done that
// follows from it: of a host that lost its power the journal is all that is left. So it is of
//
//   - the switch's beginning, while the guest runs and its packets still come here. Who finds
//     no more than that after the host's end goes on as if it had let go, so the record of
//     letting go, made while the guest stands still, need only be written (MustWrite);
//   - turning back from the switch, before the guest runs on, and taking back;
//   - the beginning of cleaning up, before anything is removed: a host that knows nothing of the
//     guest any more would take one that was let go for one that is lost.
//
// What was begun before the switch is found again by its marks.
func (s Source) MustSync(before Source) bool {
	return s.Switching() != before.Switching() || s.Taken && !before.Taken || s.Heard() && !before.Heard()
}

// MustWrite says whether this state counts only when its record is written: what no agent
// that is killed may forget. That the guest is about to be stopped, too: who does not know would not have it run on.
func (s Source) MustWrite(before Source) bool {
	stops := s.Doing() == Pause && before.Doing() != Pause
	return s.Switching() != before.Switching() || stops || s.Taken && !before.Taken || s.Released() && !before.Released()
}

// InputKind says what came in.
type InputKind string

// The inputs of both machines.
const (
	Start     InputKind = "start"     // begin
	Done      InputKind = "done"      // Effect was performed
	Fault     InputKind = "fault"     // Effect could not be performed: Problem says why
	Abort     InputKind = "abort"     // somebody asks for an end: Problem says who and why
	NoAnswer  InputKind = "no_answer" // the destination has not said what became of the release
	Declined  InputKind = "declined"  // the destination journalled that it will not start the guest in this epoch
	Restarted InputKind = "restarted" // the agent was started again: what was being performed may or may not have happened
	TakeBack  InputKind = "take_back" // a person's word, or a fence's: the guest does not run at the destination and cannot start there
	Lose      InputKind = "lose"      // the source knows that pages which the guest misses at the destination are nowhere any more
)

// Input is one thing that a machine hears.
type Input struct {
	Kind    InputKind
	Effect  Effect
	Epoch   uint64 // with Start, and of what the other side says; 0: of this right
	Problem *Problem
	Again   bool // with Fault: it is to begin again, by other means
	Stood   bool // with Fault and Abort, of Pause: the guest was not asked to stop
}

// triesMost bounds how often a migration begins again by itself. An agent that is
// killed takes its forwarder with it, and so the copy: that is nobody's decision. Nor is a
// means by which the copy does not come to its end, where nobody named it.
const triesMost = 2

// Step advances the source. An error says that the input does not fit the state,
// which is returned unchanged and stays usable.
func (s Source) Step(in Input) (Source, []Effect, error) {
	switch {
	case in.Kind == Start && s.Course == "":
		s.Course, s.Epoch = Forward, in.Epoch
		return s, []Effect{sourceSteps[0].do}, nil
	case s.Course == Forward:
		return s.forward(in)
	case s.Course == Undoing:
		return s.undoing(in)
	}
	return s, nil, fmt.Errorf("source step: %s does not fit a migration that is %q", in.Kind, s.Course)
}

func (s Source) forward(in Input) (Source, []Effect, error) {
	current := sourceSteps[s.At].do
	if in.Effect != "" && in.Effect != current {
		return s, nil, fmt.Errorf("source step: %s of %s while %s is under way", in.Kind, in.Effect, current)
	}
	switch in.Kind {
	case Done:
		s.InDoubt = false
		return s.advance()
	case Fault, Restarted:
		return s.interrupted(in)
	case Abort:
		if s.At >= release {
			return s, nil, fmt.Errorf("abort: the guest has been handed over, it can only go forward")
		}
		s.Stood = in.Stood
		next, effects, err := s.turnBack(in.Problem)
		if next.Outcome == Refused { // nobody refused it: it was called off
			next.Outcome = Aborted
		}
		return next, effects, err
	case NoAnswer:
		if current != Release {
			return s, nil, fmt.Errorf("source step: no answer was awaited in %s", current)
		}
		s.InDoubt = true // silence gives nothing back: ask again
		return s, []Effect{Release}, nil
	case Declined, TakeBack: // after the release, a refusal is a person's word at the destination
		if current != Release && current != AwaitLanding {
			return s, nil, fmt.Errorf("source step: %s in %s", in.Kind, current)
		}
		s.InDoubt = false
		if in.Kind == TakeBack { // what still waits or runs there by the old right must not
			s.Taken = true
			s.Epoch++
		}
		return s.turnBack(in.Problem)
	case Lose:
		if current != Release && current != AwaitLanding {
			return s, nil, fmt.Errorf("source step: %s in %s", in.Kind, current)
		}
		return s.lose(in.Problem)
	}
	return s, nil, fmt.Errorf("source step: unknown input %q", in.Kind)
}

// interrupted covers a step that failed, or that the agent's restart broke off.
func (s Source) interrupted(in Input) (Source, []Effect, error) {
	gone := in.Problem != nil && in.Problem.Code == CodeGuestGone
	switch restarted := in.Kind == Restarted; {
	case s.At >= release: // repaired forward: the guest's right is no longer here
		return s, []Effect{s.Doing()}, nil
	case restarted && gone && s.At >= flip: // with the host the record of letting go may be gone; there is nothing to keep here
		s.At = release
		return s, []Effect{Release}, nil
	default:
		s.Again = (restarted || in.Again) && !gone && s.Tries < triesMost
		s.Stood = in.Stood
		return s.turnBack(in.Problem)
	}
}

// lose ends what cannot be whole anywhere any more: all is undone, but that no guest runs on here, and
// the destination is told.
func (s Source) lose(why *Problem) (Source, []Effect, error) {
	s.InDoubt = false
	next, _, err := s.turnBack(why)
	next.Outcome = Failed
	next.Undo = slices.DeleteFunc(next.Undo, func(e Effect) bool { return e == Resume })
	return next, []Effect{next.Undo[0]}, err
}

func (s Source) advance() (Source, []Effect, error) {
	if s.At == len(sourceSteps)-1 {
		s.Course, s.Outcome = Ended, Completed
		return s, nil, nil
	}
	s.At++
	return s, []Effect{sourceSteps[s.At].do}, nil
}

// turnBack begins to undo all that was begun, the last first. But once packets were led away, what
// waits for the guest at the destination comes back through the tunnel: this end of it goes last. A guest that we did
// not stop is not run on.
func (s Source) turnBack(why *Problem) (Source, []Effect, error) {
	s.Problem = why
	s.Outcome = Aborted
	if sourceSteps[s.At].phase == Check && s.Tries == 0 { // else it began, and the guest runs here
		s.Outcome = Refused
	}
	for i := s.At; i >= 0; i-- {
		if u := sourceSteps[i].undo; u != "" && !(u == Resume && s.Stood) {
			s.Undo = append(s.Undo, u)
		}
	}
	if last := len(s.Undo) - 1; s.LedAway() {
		s.Undo[last-1], s.Undo[last] = UndoPrepareThere, UndoPrepareHere
	}
	s.Course = Undoing
	return s.undoNext()
}

func (s Source) undoing(in Input) (Source, []Effect, error) {
	if in.Kind == Abort { // on the way back already, and there it ends
		if s.Again {
			s.Again, s.Problem = false, in.Problem
		}
		return s, nil, nil
	}
	if in.Effect != "" && in.Effect != s.Undo[0] {
		return s, nil, fmt.Errorf("source step: %s of %s while %s is under way", in.Kind, in.Effect, s.Undo[0])
	}
	switch in.Kind {
	case Restarted:
		return s, []Effect{s.Undo[0]}, nil
	case Done, Fault: // an undo that failed has said so; the rest is undone all the same
		s.Again = s.Again && in.Kind == Done
		s.Undo = s.Undo[1:]
		return s.undoNext()
	}
	return s, nil, fmt.Errorf("source step: %s does not fit an undo", in.Kind)
}

func (s Source) undoNext() (Source, []Effect, error) {
	if len(s.Undo) == 0 && s.Again { // as if it had not been tried, with the next right
		next := Source{Course: Forward, Epoch: s.Epoch + 1, Tries: s.Tries + 1, Hooked: s.Asked()}
		return next, []Effect{sourceSteps[0].do}, nil
	}
	if len(s.Undo) == 0 {
		s.Course = Ended
		return s, nil, nil
	}
	return s, []Effect{s.Undo[0]}, nil
}

func indexOf(steps []step, e Effect) int {
	for i, s := range steps {
		if s.do == e {
			return i
		}
	}
	panic("migration: no step " + string(e))
}
