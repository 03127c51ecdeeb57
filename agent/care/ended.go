package care

import (
	"errors"
	"fmt"
	"time"

	"godwit/agent/config"
	"godwit/migration"
)

// EndedFolder has, in an agent's STATE, a file NAME.json of each guest that has ended there.
const EndedFolder = "ended-guests"

// Ended is what a guest was that has ended by itself where it was under care. It is for people: no agent starts a guest
// by it, as it may run elsewhere by now, or have newer disks there.
type Ended struct {
	Description config.Description  `json:"description"`
	Addresses   []migration.Address `json:"addresses"`    // that it had last
	At          time.Time           `json:"at"`           // when its end was seen
	Why         string              `json:"why"`          // for people
	By          string              `json:"by,omitempty"` // and Epoch: the right by which it was here, as Held's
	Epoch       uint64              `json:"epoch,omitempty"`
	Unheard     *Unheard            `json:"unheard,omitempty"` // how it came, until its source has said that it has not got it again
}

// Elsewhere says for people who may have the guest again; "": nobody whom an agent could ask.
func (e *Ended) Elsewhere() string {
	if e.Unheard == nil {
		return ""
	}
	return e.Unheard.From + ", from which it came, has not said yet whether it took it back"
}

// Check says what is wrong with what was kept.
func (e *Ended) Check() error {
	switch {
	case e.At.IsZero():
		return errors.New("an end without a time")
	case e.Unheard != nil && !migration.ValidID(e.Unheard.Migration):
		return fmt.Errorf("an end of a guest that came by migration %.100q", e.Unheard.Migration)
	}
	return errors.Join(e.Description.Check(), migration.CheckAddresses(e.Addresses))
}
