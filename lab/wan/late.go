package wan

import (
	"os"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// A link that gets its processor late delivers in one moment what was due over a while: no real link
// does, and the queue of the next one would overflow. So links of one lab tell each other, by a word of
// memory that their processes share, when they did, and the next takes those packets as having come in turn
// where its queue has no room for them.

// bunch is how late a link must be for what it delivers to count as a bunch.
const bunch = 2 * spacing

// mostLate bounds what is made good: beyond it a machine is too busy for its links.
const mostLate = 100 * time.Millisecond

// lateFor is for how long after it was told a bunch is still being delivered.
const lateFor = time.Millisecond

// lateFile is the memory that links of this process share; nil where there is none.
var lateFile = sync.OnceValue(func() *os.File {
	fd, err := unix.MemfdCreate("godwit-late-links", unix.MFD_CLOEXEC)
	if err != nil {
		return nil
	}
	if err := unix.Ftruncate(fd, 8); err != nil {
		unix.Close(fd)
		return nil
	}
	return os.NewFile(uintptr(fd), "late-links")
})

// lateFD is its descriptor in a link's process.
const lateFD = 3

// lateBits are enough for mostLate, µs; the rest, for four years.
const lateBits = 17

// lateness is the latest bunch of all links: when it was delivered, µs since the machine's start, and, in the last
// lateBits, how late, µs.
type lateness struct{ word *atomic.Uint64 }

// openLateness maps what a link's process has been given; own, if that fails.
func openLateness(own lateness) lateness {
	memory, err := unix.Mmap(lateFD, 0, 8, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return own
	}
	return lateness{(*atomic.Uint64)(unsafe.Pointer(&memory[0]))}
}

// tell says that what is delivered now is late by that much.
func (l lateness) tell(by time.Duration) {
	if by = min(by, mostLate); by > bunch {
		l.word.Store(sinceBoot()<<lateBits | uint64(by.Microseconds())) //nolint:gosec // at most mostLate
	}
}

// lately is how late was what a link has just delivered, 0 if none was.
func (l lateness) lately() time.Duration {
	word := l.word.Load()
	if word == 0 || sinceBoot() > word>>lateBits+uint64(lateFor.Microseconds()) {
		return 0
	}
	return time.Duration(word&(1<<lateBits-1)) * time.Microsecond //nolint:gosec // few bits
}

// sinceBoot is the same for all processes, µs.
func sinceBoot() uint64 {
	var now unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &now)
	return uint64(now.Nano() / 1000) //nolint:gosec // after the start
}
