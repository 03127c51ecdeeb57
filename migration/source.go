package migration

import "fmt"

// Effect is one act on the world. The agent performs it, then feeds Done or Failed
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
	Pause        Effect = "pause"         // the guest executes nothing; its tap is drained
	Release      Effect = "release"       // journal that we have let go, then hand the right over and let the rest of memory go
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

// release is the index of the one step that cannot be undone from here.
var release = indexOf(sourceSteps, Release)

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
	At      int      `json:"at"`       // index of the step being performed
	Undo    []Effect `json:"undo"`     // what is left to undo, next first
	InDoubt bool     `json:"in_doubt"` // the release was sent and nothing has been heard
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

// Doing is the step that the migration has got to, also while it is undone.
func (s Source) Doing() Effect { return sourceSteps[s.At].do }

// Asked says whether the hooks of PRE_MIGRATION_START were asked: what ends from then
// on must be told to them.
func (s Source) Asked() bool { return s.Course != "" && s.At >= indexOf(sourceSteps, AskStart) }

// Released says whether the right to run the guest has left this host.
func (s Source) Released() bool {
	return s.Course == Forward && s.At >= release || s.Outcome == Completed
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
)

// Input is one thing that a machine hears.
type Input struct {
	Kind    InputKind
	Effect  Effect
	Problem *Problem
}

// Step advances the source. An error says that the input does not fit the state,
// which is returned unchanged and stays usable.
func (s Source) Step(in Input) (Source, []Effect, error) {
	switch {
	case in.Kind == Start && s.Course == "":
		s.Course = Forward
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
	released := s.At >= release
	switch in.Kind {
	case Done:
		s.InDoubt = false
		return s.advance()
	case Fault, Restarted:
		if released { // repaired forward: the guest's right is no longer here
			return s, []Effect{current}, nil
		}
		return s.turnBack(in.Problem)
	case Abort:
		if released {
			return s, nil, fmt.Errorf("abort: the guest has been handed over, it can only go forward")
		}
		return s.turnBack(in.Problem)
	case NoAnswer:
		if current != Release {
			return s, nil, fmt.Errorf("source step: no answer was awaited in %s", current)
		}
		s.InDoubt = true // silence gives nothing back: ask again
		return s, []Effect{Release}, nil
	case Declined:
		if current != Release {
			return s, nil, fmt.Errorf("source step: a refusal in %s", current)
		}
		s.InDoubt = false
		return s.turnBack(in.Problem)
	}
	return s, nil, fmt.Errorf("source step: unknown input %q", in.Kind)
}

func (s Source) advance() (Source, []Effect, error) {
	if s.At == len(sourceSteps)-1 {
		s.Course, s.Outcome = Ended, Completed
		return s, nil, nil
	}
	s.At++
	return s, []Effect{sourceSteps[s.At].do}, nil
}

// turnBack begins to undo all that was begun, the last first.
func (s Source) turnBack(why *Problem) (Source, []Effect, error) {
	s.Problem = why
	s.Outcome = Aborted
	if sourceSteps[s.At].phase == Check {
		s.Outcome = Refused
	}
	for i := s.At; i >= 0; i-- {
		if u := sourceSteps[i].undo; u != "" {
			s.Undo = append(s.Undo, u)
		}
	}
	s.Course = Undoing
	return s.undoNext()
}

func (s Source) undoing(in Input) (Source, []Effect, error) {
	if in.Kind == Abort { // already on the way back
		return s, nil, nil
	}
	if in.Effect != "" && in.Effect != s.Undo[0] {
		return s, nil, fmt.Errorf("source step: %s of %s while %s is under way", in.Kind, in.Effect, s.Undo[0])
	}
	switch in.Kind {
	case Restarted:
		return s, []Effect{s.Undo[0]}, nil
	case Done, Fault: // an undo that failed has said so; the rest is undone all the same
		s.Undo = s.Undo[1:]
		return s.undoNext()
	}
	return s, nil, fmt.Errorf("source step: %s does not fit an undo", in.Kind)
}

func (s Source) undoNext() (Source, []Effect, error) {
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
