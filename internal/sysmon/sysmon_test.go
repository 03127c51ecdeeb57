package sysmon

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"godwit/internal/need"
)

// TestCalm: the thread that gets the slack is the monitor, the only one that sleeps by the clock while the program is busy.
func TestCalm(t *testing.T) {
	need.Root(t)
	if err := Calm(); err != nil {
		t.Fatal(err)
	}
	var slow, sleeper []string
	for end := time.Now().Add(5 * time.Second); len(sleeper) == 0; { // which computes: the monitor is awake
		if time.Now().After(end) {
			t.Fatal("no thread sleeps by the clock")
		}
		threads, err := os.ReadDir("/proc/self/task")
		if err != nil {
			t.Fatal(err)
		}
		slow = nil
		for _, thread := range threads {
			if read(thread.Name(), "timerslack_ns") == slack {
				slow = append(slow, thread.Name())
			}
			if strings.Contains(read(thread.Name(), "wchan"), "nanosleep") {
				sleeper = append(sleeper, thread.Name())
			}
		}
	}
	if len(slow) != 1 || !slices.Equal(slow, sleeper) {
		t.Errorf("calm are the threads %v, and %v sleeps by the clock", slow, sleeper)
	}
}

func read(thread, name string) string {
	content, _ := os.ReadFile(filepath.Join("/proc", thread, name)) // it may have ended
	return strings.TrimSpace(string(content))
}

// TestCalmRefused: what it is to write is not there.
func TestCalmRefused(t *testing.T) {
	if err := calm(t.TempDir()); err == nil {
		t.Error("no error without /proc")
	}
}
