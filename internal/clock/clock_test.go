package clock

import (
	"path/filepath"
	"testing"
	"time"
)

func TestStep(t *testing.T) {
	path := filepath.Join(t.TempDir(), "clock")
	file = path
	defer func() { file = "" }()
	near := func(want time.Duration) {
		t.Helper()
		if got := time.Until(Now()); got < want-time.Second || got > want+time.Second {
			t.Errorf("%v ahead, want %v", got, want)
		}
	}
	near(0) // no file
	before := Now()
	for _, d := range []time.Duration{time.Hour, -time.Hour, 0} {
		if err := Step(path, d); err != nil {
			t.Fatal(err)
		}
		near(d)
		if got := Now().Sub(before); got < d-time.Second || got > d+time.Minute {
			t.Errorf("after a step of %v, %v have passed: want the step to be seen", d, got)
		}
	}
	if u := Until(Now().Add(time.Minute)); u < 59*time.Second || u > time.Minute {
		t.Errorf("a minute ahead is %v ahead", u)
	}
}
