package proxy

import (
	"errors"
	"runtime"
	"time"

	"golang.org/x/sys/unix"
)

// Giving back a guest's worth of memory or disk takes a processor for 0.1 s and more for each
// gigabyte: not while the guest, that has just been moved, wants it.
var freeAfter = 3 * time.Second // shorter in tests

// idlest is the nice value with the least weight.
const idlest = 19

// freeLater calls free, on a thread of the least priority.
func freeLater(free func() error) {
	go func() {
		time.Sleep(freeAfter)
		runtime.LockOSThread() // and never unlocked: the thread ends with its priority
		setNice(unix.Gettid(), idlest)
		free() //nolint:errcheck // it is gone with the process at the latest
	}()
}

// free gives back what the pages were kept in.
func (s *Source) free() error {
	err := s.memory.Close()
	if s.spill != nil {
		err = errors.Join(err, s.spill.Close())
	}
	return err
}

// closeMirror gives back a Destination's mirror.
func (d *Destination) closeMirror() error {
	d.lent.Load().takeBack()
	return d.mirror.Close()
}
