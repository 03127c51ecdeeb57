package talk

import (
	"fmt"

	"godwit/migration"
	"godwit/vm"
)

// What two hosts ask each other of a guest: whether it is there, whether it runs where it was let go to, and what it
// misses there.

// Presence is what a host says of itself to another.
type Presence struct {
	Guests int    `json:"guests"`
	Free   *int64 `json:"free,omitempty"`   // bytes; null: not known
	Has    *bool  `json:"has,omitempty"`    // of the guest that is asked about: it is, or may be, here, or is led on; null: none was, or by an older release
	LedOn  bool   `json:"led_on,omitempty"` // what comes for it goes to another host than the one that asks
}

// LandingAnswer is what a destination says of a guest that its source let go.
type LandingAnswer struct {
	Landing  migration.Landing `json:"landing"`
	Vanished string            `json:"vanished,omitempty"` // why it is not known whether it ran
	Status   vm.Status         `json:"status,omitempty"`   // of its QEMU; "": there is none
	// Problem is why it will not run here; nil: it may, or that is not known any more.
	Problem *migration.Problem `json:"problem,omitempty"`
}

// Runs says that the guest runs there.
func (l LandingAnswer) Runs() bool {
	return l.Landing == migration.Landed || l.Landing == migration.Adopting || l.Landing == migration.Leaving
}

// Words are what a person is told of an answer.
func (l LandingAnswer) Words(host string) string {
	switch {
	case l.Vanished != "":
		return host + " says: " + l.Vanished
	case l.Landing == migration.Declining || l.Landing == migration.Gone:
		return host + " refused the guest: it comes back by itself"
	case l.Runs():
		return host + " runs the guest: nothing is to be decided"
	}
	return fmt.Sprintf("%s answers, and waits (%s): the doubt ends by itself", host, l.Landing)
}

// Refill asks a destination for a session in which the source sends what is missing.
type Refill struct {
	Epoch uint64 `json:"epoch"`
	Key   []byte `json:"key"` // of the lanes
}

// RefillAnswer is what the destination says.
type RefillAnswer struct {
	State   string `json:"state"`   // open: it waits for lanes; whole: nothing is missing; early: the guest could not run yet
	Missing uint64 `json:"missing"` // pages
}

// The states of a RefillAnswer.
const (
	RefillOpen  = "open"
	RefillWhole = "whole"
	RefillEarly = "early"
)

// Copied is what a source has sent of read-only disks, when all of them is there.
type Copied struct {
	Sums map[string][]byte `json:"sums"` // see nbd.Digest, by disk
}
