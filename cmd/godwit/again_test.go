package main

import (
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// said is what was written so far.
type said struct {
	mu   sync.Mutex
	text strings.Builder
}

func (s *said) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.Write(p)
}

func (s *said) lines() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.Count(s.text.String(), endsAlready+"\n")
}

// TestEndedTwice: who presses Ctrl-C again, while a command takes away what it has made, is told that it ends; once is
// enough for most.
func TestEndedTwice(t *testing.T) {
	var out said
	stop := tellAgain(&out, []os.Signal{syscall.SIGUSR1})
	came := make(chan os.Signal, 4)
	signal.Notify(came, syscall.SIGUSR1)
	defer signal.Stop(came)
	for presses, want := range []int{0, 0, 1, 2} {
		if presses > 0 {
			if err := syscall.Kill(os.Getpid(), syscall.SIGUSR1); err != nil {
				t.Fatal(err)
			}
			<-came                            // one that waits is not sent twice
			time.Sleep(50 * time.Millisecond) // in which something else could be said
		}
		for until := time.Now().Add(10 * time.Second); out.lines() < want && time.Now().Before(until); time.Sleep(time.Millisecond) {
		}
		if got := out.lines(); got != want {
			t.Errorf("pressed %d times: told %d times, want %d", presses, got, want)
		}
	}
	stop()
}
