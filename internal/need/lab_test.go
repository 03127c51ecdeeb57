package need

import (
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// free tells whether nobody holds the lock of the lab.
func free(t *testing.T) bool {
	t.Helper()
	file, err := os.Open(labLock)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	return unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB) == nil
}

func TestLabIsHeldUntilTheTestEnds(t *testing.T) {
	t.Run("holder", func(t *testing.T) {
		Lab(t)
		t.Run("subtest", func(t *testing.T) {
			if free(t) {
				t.Error("the lock is free while the test that asked for it runs")
			}
		})
	})
}

func TestLabWaitsForTheHolder(t *testing.T) {
	const each = 100 * time.Millisecond
	type span struct{ from, to time.Time }
	spans := make(chan span, 2)
	t.Run("both", func(t *testing.T) {
		for _, name := range []string{"one", "other"} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				Lab(t)
				from := time.Now()
				time.Sleep(each)
				spans <- span{from, time.Now()}
			})
		}
	})
	close(spans)
	first, second := <-spans, <-spans
	if second.from.Before(first.to) {
		t.Errorf("the second began %v before the first ended", first.to.Sub(second.from))
	}
}
