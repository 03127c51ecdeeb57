package care

import (
	"errors"
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
	Addresses   []migration.Address `json:"addresses"` // that it had last
	At          time.Time           `json:"at"`        // when its end was seen
	Why         string              `json:"why"`       // for people
}

// Check says what is wrong with what was kept.
func (e *Ended) Check() error {
	if e.At.IsZero() {
		return errors.New("an end without a time")
	}
	return errors.Join(e.Description.Check(), migration.CheckAddresses(e.Addresses))
}
