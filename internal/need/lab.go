package need

import (
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// labLock is held by the test that owns the machine. It stays; the lock on it
// goes with its holder, however that ends.
const labLock = "/run/godwit-test.lock"

// Lab asks for root and for the machine to oneself: no other test that called
// Lab runs, in this process or in another one, until t and its subtests are
// done. Tests that build a whole lab, boot a guest or judge a measurement call it, so
// that they neither fight for two cores nor measure each other; packages may be tested
// in parallel all the same.
//
// It waits for as long as t may still run, less the time to say so. The wait
// counts towards the time limit of the test binary.
func Lab(t testing.TB) {
	t.Helper()
	Root(t)
	file, err := os.OpenFile(labLock, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		t.Fatalf("open lock of the lab: %v", err)
	}
	t.Cleanup(func() { file.Close() })

	limit := time.Now().Add(time.Hour)
	if d, ok := t.(interface{ Deadline() (time.Time, bool) }); ok {
		if deadline, set := d.Deadline(); set {
			limit = deadline.Add(-5 * time.Second)
		}
	}
	locked := make(chan error, 1)
	go func() { // in the kernel's queue: a test that polls never gets it from those that wait there
		for {
			err := unix.Flock(int(file.Fd()), unix.LOCK_EX)
			if err != unix.EINTR {
				locked <- err
				return
			}
		}
	}()
	select {
	case err := <-locked:
		if err != nil {
			t.Fatalf("lock %s: %v", labLock, err)
		}
	case <-time.After(time.Until(limit)):
		t.Fatalf("lock %s: held by another test for too long", labLock)
	}
}
