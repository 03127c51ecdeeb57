package care

import (
	"errors"
	"fmt"
	"time"
)

// EndedFolder has, in an agent's STATE, a file NAME.json of each guest that has ended there.
const EndedFolder = "ended-guests"

// Ended is what is kept of a guest that has ended by itself, on the host that had it under care.
type Ended struct {
	Held  Held        `json:"held"`            // as it was last
	At    time.Time   `json:"at"`              // when its end was seen
	Why   string      `json:"why"`             // for people
	Disks []EndedDisk `json:"disks,omitempty"` // as it left them
}

// EndedDisk is by what the file of a disk is known again: nobody has written to it since.
type EndedDisk struct {
	Path    string    `json:"path"`
	Size    int64     `json:"size"`
	Written time.Time `json:"written"` // zero: there was no such file
	Inode   uint64    `json:"inode"`
}

// Check says what is wrong with what was kept.
func (e *Ended) Check() error {
	if e.At.IsZero() {
		return errors.New("an end without a time")
	}
	if n, disks := len(e.Disks), len(e.Held.Description.Disks); n != disks {
		return fmt.Errorf("guest %s: what is known of %d disks, of %d", e.Held.Description.Name, n, disks)
	}
	return e.Held.Check()
}

// Adopted says that somebody else had started it where it ended, and starts it again.
func (e Ended) Adopted() bool { return e.Held.Description.QMP != "" }
