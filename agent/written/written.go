// Package written is what an agent writes down of a migration in its journal (package journal), at either side, for the
// agent after it: as JSON, in which a later version finds what an earlier one wrote.
package written

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"time"

	"godwit/agent/care"
	"godwit/agent/detour"
	"godwit/agent/journal"
	"godwit/agent/statefile"
	"godwit/agent/talk"
	"godwit/migration"
	"godwit/vm/guest"
)

// Source is what survives the agent of a migration at its source.
type Source struct {
	Side   string           `json:"side"` // "source"
	Plan   migration.Plan   `json:"plan"`
	State  migration.Source `json:"state"`
	Begun  int64            `json:"begun"`            // unix ns
	Doing  migration.Effect `json:"doing"`            // the step that State counts to, by name: another version may count otherwise
	Skew   time.Duration    `json:"skew,omitempty"`   // the destination's clock minus ours
	Paused int64            `json:"paused,omitempty"` // the guest was stopped, unix ns
	Report json.RawMessage  `json:"report,omitempty"` // what it had come to, a record.Report; before the switch what it had sent alone
	Needed *detour.Needed   `json:"needed,omitempty"` // from CleanSource on
	Coming bool             `json:"coming,omitempty"` // see talk.Prepared
	Home   []netip.Addr     `json:"home,omitempty"`   // see talk.Prepared
	QEMU   string           `json:"qemu,omitempty"`   // which process its QEMU is
	Next   string           `json:"next,omitempty"`   // mode of the next try

	RunsThere bool `json:"runs_there,omitempty"` // by its destination's word, though State has it here
}

// Check says what is wrong with a state that was read, in one line.
func (j Source) Check(id string) error {
	err := j.State.Valid()
	if err == nil && j.Plan.ID != id {
		err = fmt.Errorf("it is of migration %q", j.Plan.ID)
	}
	if err == nil && j.Doing != "" && j.Doing != j.State.Reached() { // a guest that was let go could be taken for one that was not
		err = fmt.Errorf("source's state: step %d is %s here, and was %.100q where it was written", j.State.At, j.State.Reached(), j.Doing)
	}
	if err != nil {
		return fmt.Errorf("journal %s: %w", id, err)
	}
	return nil
}

// Destination is the same at its destination.
type Destination struct {
	Side        string                `json:"side"` // "destination"
	Offer       talk.Offer            `json:"offer"`
	Preparation talk.Preparation      `json:"preparation"`
	State       migration.Destination `json:"state"`
	Held        care.Held             `json:"held"`
	Ran         bool                  `json:"ran"`              // or may have: its disks are not to be removed
	Report      json.RawMessage       `json:"report,omitempty"` // what it had come to, a record.Report; absent before the guest ran
	Handover    *Handover             `json:"handover,omitempty"`
}

// Handover is what its tries have come to, of which the last may be under way.
type Handover struct {
	Joins *guest.Joins `json:"joins,omitempty"` // those that could not follow are counted as omitted; nil: no try has waited for any
	Used  uint8        `json:"used,omitempty"`  // the last endpoint id that telling clients again has used, or may have; 0: none
	Main  bool         `json:"main,omitempty"`  // the guest may send by its next addresses
	Said  bool         `json:"said,omitempty"`  // it has said that it does
}

// Check says what is wrong with a state that was read, in one line.
func (j Destination) Check(id string) error {
	err := j.State.Valid()
	if err == nil && j.Offer.Plan.ID != id {
		err = fmt.Errorf("it is of migration %q", j.Offer.Plan.ID)
	}
	if err == nil {
		err = j.Preparation.Check()
	}
	if err == nil && j.Held.Dir != "" && !statefile.DirectlyIn(j.Held.Dir, "guests") {
		err = fmt.Errorf("directory %.200q is not of a guest", j.Held.Dir)
	}
	if err != nil {
		return fmt.Errorf("journal %s: %w", id, err)
	}
	return nil
}

// Head is what a journal of either side says first of all.
type Head struct {
	Plan  planHead `json:"plan"`
	Offer struct {
		Plan planHead `json:"plan"`
	} `json:"offer"`
	State struct {
		Course migration.Course `json:"course"` // of a source
	} `json:"state"`
}

type planHead struct {
	Guest string `json:"guest"`
}

// HeadOf reads the head of the journal of a migration in dir; what there is not, or cannot be read, is empty. Whose a
// journal is, is known by its beginning, too.
func HeadOf(dir, id string) Head {
	var head, begun Head
	if journal.Read(dir, id, &head) == nil { // else it was said when it was resumed
		return head
	}
	if journal.First(dir, id, &begun) != nil {
		return Head{}
	}
	return Head{Plan: begun.Plan, Offer: begun.Offer}
}
