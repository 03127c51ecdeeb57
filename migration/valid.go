package migration

import (
	"fmt"
	"slices"
)

// Valid says what is wrong with a state that was read from a journal. One that a
// machine never was in is not gone on from: nobody knows what it meant.
func (s Source) Valid() error {
	courses := []Course{Forward, Undoing, Ended} // one that has not begun is not written
	switch {
	case !slices.Contains(courses, s.Course):
		return fmt.Errorf("source's state: course %q is unknown", s.Course)
	case s.At < 0 || s.At >= len(sourceSteps):
		return fmt.Errorf("source's state: step %d of %d", s.At, len(sourceSteps))
	case s.Course == Undoing && len(s.Undo) == 0:
		return fmt.Errorf("source's state: undoing, and nothing to undo")
	case s.Outcome == Failed && slices.Contains(s.Undo, Resume):
		return fmt.Errorf("source's state: the guest is lost, and to run on")
	case s.Stood && slices.Contains(s.Undo, Resume):
		return fmt.Errorf("source's state: the guest was not stopped by us, and is to run on")
	case s.Course == Undoing && s.Outcome != Aborted && s.Outcome != Refused && s.Outcome != Failed:
		return fmt.Errorf("source's state: undoing with outcome %q", s.Outcome)
	case s.Course == Ended && s.Outcome != Completed && s.Outcome != Aborted && s.Outcome != Refused && s.Outcome != Failed:
		return fmt.Errorf("source's state: ended with outcome %q", s.Outcome)
	}
	for _, e := range s.Undo {
		if e == "" || !slices.ContainsFunc(sourceSteps, func(st step) bool { return st.undo == e }) {
			return fmt.Errorf("source's state: undo %q is unknown", e)
		}
	}
	return nil
}

// Valid says what is wrong with a state that was read from a journal.
func (d Destination) Valid() error {
	landings := []Landing{Receiving, Waiting, Starting, Adopting, Leaving, Landed, Declining, Gone}
	if !slices.Contains(landings, d.Landing) {
		return fmt.Errorf("destination's state: landing %q is unknown", d.Landing)
	}
	return nil
}
