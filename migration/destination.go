package migration

import "fmt"

// Effects of the destination.
const (
	Receive    Effect = "receive"   // QEMU waits with -S, tunnel end, routes, redirect and hold stand; journalled: may start
	StartGuest Effect = "start"     // the guest runs here
	Adopt      Effect = "adopt"     // every connection that can has moved to the next address; see Landing
	Leave      Effect = "leave"     // what nobody needs of the old address is gone, the rest is leased
	SendBack   Effect = "send_back" // QEMU here is gone, held packets went back, nothing of prepare is left
)

// Landing is how far a destination is.
type Landing string

// The landings.
const (
	Receiving Landing = "receiving" // being prepared
	Waiting   Landing = "waiting"   // prepared; may start when released and loaded
	Starting  Landing = "starting"
	Adopting  Landing = "adopting" // runs here; connections move
	Leaving   Landing = "leaving"
	Landed    Landing = "landed"
	Declining Landing = "declining" // final: will not start in this epoch; being undone
	Gone      Landing = "gone"      // declined and undone
)

// Destination is the state of a migration at its destination. The zero value has not begun.
type Destination struct {
	Landing  Landing  `json:"landing"`
	Epoch    uint64   `json:"epoch"`              // of the right that comes here
	Released bool     `json:"released"`           // the source's release is here
	Loaded   bool     `json:"loaded"`             // QEMU has every byte that the mode needs
	Vanished bool     `json:"vanished"`           // its QEMU is gone and may have run: neither started nor refused here
	Disowned bool     `json:"disowned,omitempty"` // what may have run here was given up: by a person, or as it can never be whole
	Outcome  Outcome  `json:"outcome"`
	Problem  *Problem `json:"problem,omitempty"`
}

// Inputs that only a destination hears.
const (
	Released    InputKind = "released"     // the source has let go
	LoadedAll   InputKind = "loaded"       // the hypervisor has every byte
	RunsAlready InputKind = "runs_already" // the guest was found running here, or to have run
	Vanish      InputKind = "vanish"       // its QEMU is gone, and nobody saw whether the guest ran in it
	AskRefusal  InputKind = "ask_refusal"  // the source let go, and knows that its memory did not get through
	// Disown is a person's word: what may have run here is given up. It comes only where a QEMU is gone, or where a
	// guest misses pages of which its source says nothing any more.
	Disown InputKind = "disown"
)

// Of the inputs of both machines, an Abort from the source says that it has not let go; one
// with a later epoch, that it took the guest back: then nothing may run here by this one. A
// Lose comes only from a source whose QEMU is gone, to a destination that misses pages.

// Running says whether the guest was started here.
// It says so also of a guest that has vanished since.
func (d Destination) Running() bool {
	return d.Landing == Adopting || d.Landing == Leaving || d.Landing == Landed
}

// Refused says whether this side has given its final word that it will not start the guest.
func (d Destination) Refused() bool { return d.Landing == Declining || d.Landing == Gone }

// Declines says whether the source may be told that the guest will not run here: it continues
// the guest then. What may have run here must be gone before that, and not only refused.
func (d Destination) Declines() bool {
	return d.Landing == Gone || d.Landing == Declining && !d.Disowned
}

// MustSync says whether this state must be on the disk before anybody hears of it:
// that the guest may start here, and that it will not. That it is being started need
// not be: the QEMU that runs says so, and of one that is gone nothing is believed.
func (d Destination) MustSync(before Destination) bool {
	return before.Landing == Receiving && d.Landing != Receiving || d.Refused() && !before.Refused()
}

// Step advances the destination. An error says that the input does not fit the
// state, which is returned unchanged and stays usable.
func (d Destination) Step(in Input) (Destination, []Effect, error) {
	switch {
	case in.Epoch != 0 && in.Epoch < d.Epoch:
		return d, nil, fmt.Errorf("destination step: %s of epoch %d, and this is %d", in.Kind, in.Epoch, d.Epoch)
	case in.Epoch > d.Epoch && in.Kind == Abort && d.Landing != "" && !d.Refused():
		return d.decline(in.Problem)
	case in.Epoch > d.Epoch && in.Kind != Start:
		return d, nil, fmt.Errorf("destination step: %s of epoch %d, and this is %d", in.Kind, in.Epoch, d.Epoch)
	case d.Vanished:
		return d.vanished(in)
	}
	switch d.Landing {
	case "":
		if in.Kind == Start {
			d.Landing, d.Epoch = Receiving, in.Epoch
			return d, []Effect{Receive}, nil
		}
	case Receiving, Waiting, Starting:
		return d.waiting(in)
	case Adopting:
		return d.repaired(in, Adopt, Leaving, Leave)
	case Leaving:
		return d.repaired(in, Leave, Landed, "")
	case Declining:
		switch {
		case in.Kind == Restarted, in.Kind == Vanish:
			return d, []Effect{SendBack}, nil
		case in.Effect == SendBack && (in.Kind == Done || in.Kind == Fault):
			d.Landing = Gone // an undo that failed has said so
		}
		return d, nil, nil // said once, said for good; what else was under way ends unheard
	}
	return d, nil, fmt.Errorf("destination step: %s does not fit %q", in.Kind, d.Landing)
}

// waiting covers all that comes before the guest runs here.
func (d Destination) waiting(in Input) (Destination, []Effect, error) {
	switch in.Kind {
	case Done:
		switch {
		case in.Effect == Receive && d.Landing == Receiving:
			d.Landing = Waiting
			return d.startIfReady()
		case in.Effect == StartGuest && d.Landing == Starting:
			return d.runs()
		}
		return d, nil, fmt.Errorf("destination step: %s done in %s", in.Effect, d.Landing)
	case Released:
		d.Released = true
		return d.startIfReady()
	case LoadedAll:
		d.Loaded = true
		return d.startIfReady()
	case RunsAlready:
		return d.runs()
	case Restarted: // the caller looked: QEMU lives and the guest was never started
		if d.Landing == Receiving || d.Landing == Waiting && !d.Released {
			return d.decline(in.Problem)
		}
		d.Landing, d.Loaded = Waiting, false // QEMU is asked again what it has
		return d, nil, nil
	case Vanish:
		if d.Landing == Receiving { // never said to be ready: nobody can have let go
			return d.decline(in.Problem)
		}
		d.Vanished = true
		return d, nil, nil
	case Disown:
		if d.Landing == Starting { // before that nothing can have run, and the wait for the source ends by itself
			return d.disown(in.Problem)
		}
	case Fault, Abort, AskRefusal, Lose:
		if d.Landing == Starting && in.Effect != StartGuest {
			return d, nil, fmt.Errorf("%s: the guest is being started here", in.Kind)
		}
		if in.Kind == Lose {
			return d.lose(in.Problem)
		}
		return d.decline(in.Problem)
	}
	return d, nil, fmt.Errorf("destination step: %s does not fit %q", in.Kind, d.Landing)
}

// vanished covers a guest of which nobody here knows whether it ran, or whose only
// running QEMU is gone. It is over when the source says that it did not let go, has
// taken the guest back, or when a person gives it up here.
func (d Destination) vanished(in Input) (Destination, []Effect, error) {
	switch in.Kind {
	case Abort:
		if !d.Running() {
			return d.decline(in.Problem)
		}
	case Disown:
		return d.disown(in.Problem)
	case Lose:
		return d.lose(in.Problem)
	case Released:
		d.Released = true
		return d, nil, nil
	case Vanish, Restarted:
		return d, nil, nil
	}
	return d, nil, fmt.Errorf("destination step: %s, and whether the guest ran here is not known", in.Kind)
}

// startIfReady starts the guest when it has been let go and is all there.
func (d Destination) startIfReady() (Destination, []Effect, error) {
	if d.Landing == Waiting && d.Released && d.Loaded {
		d.Landing = Starting
		return d, []Effect{StartGuest}, nil
	}
	return d, nil, nil
}

func (d Destination) runs() (Destination, []Effect, error) {
	d.Landing, d.Outcome = Adopting, Completed
	return d, []Effect{Adopt}, nil
}

func (d Destination) decline(why *Problem) (Destination, []Effect, error) {
	d.Landing, d.Outcome, d.Problem, d.Vanished = Declining, Aborted, why, false
	return d, []Effect{SendBack}, nil
}

// disown gives up, by a person's word, what runs here, or may have.
func (d Destination) disown(why *Problem) (Destination, []Effect, error) {
	d.Disowned = true
	return d.decline(why)
}

// lose gives up a guest of which pages are missing that are nowhere any more: it would stand still for ever
// at the first that it touches.
func (d Destination) lose(why *Problem) (Destination, []Effect, error) {
	d.Disowned = true
	next, effects, err := d.decline(why)
	next.Outcome = Failed
	return next, effects, err
}

// repaired does effect until it is done: the guest runs here, the way is forward.
func (d Destination) repaired(in Input, effect Effect, next Landing, then Effect) (Destination, []Effect, error) {
	if (in.Kind == Done || in.Kind == Fault) && in.Effect != effect {
		return d, nil, fmt.Errorf("destination step: %s of %s while %s is under way", in.Kind, in.Effect, effect)
	}
	switch in.Kind {
	case Done:
		d.Landing = next
		if !d.Vanished {
			d.Problem = nil // what was repaired is none of a guest that runs here
		}
		if then == "" {
			return d, nil, nil
		}
		return d, []Effect{then}, nil
	case Fault:
		d.Problem = in.Problem
		return d, []Effect{effect}, nil
	case Restarted: // no fault: the guest had been let go long before
		return d, []Effect{effect}, nil
	case Vanish: // the guest died here; only a person can do something about it
		d.Vanished, d.Problem = true, in.Problem
		return d, nil, nil
	case Lose:
		return d.lose(in.Problem)
	case Disown:
		return d.disown(in.Problem)
	case Released, LoadedAll, RunsAlready, Abort, AskRefusal:
		return d, nil, nil
	}
	return d, nil, fmt.Errorf("destination step: %s does not fit %q", in.Kind, d.Landing)
}
