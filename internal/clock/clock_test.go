package clock

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"godwit/internal/need"
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

// TestSinceBootCountsSleep: of a host that has slept for an hour, as a time namespace shows it, that hour counts.
func TestSinceBootCountsSleep(t *testing.T) {
	const asked, slept = "GODWIT_TEST_SINCE_BOOT", time.Hour
	if os.Getenv(asked) != "" {
		fmt.Println("since boot", int64(SinceBoot()))
		return
	}
	need.Root(t)
	need.Program(t, "unshare")
	before := SinceBoot()
	cmd := exec.Command("unshare", "--time", "--boottime", fmt.Sprint(slept.Seconds()), os.Args[0], "-test.run", t.Name())
	cmd.Env = append(os.Environ(), asked+"=1")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	var there int64
	_, said, _ := strings.Cut(string(out), "since boot ")
	if _, err := fmt.Sscan(said, &there); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if passed := time.Duration(there) - before - slept; passed < 0 || passed > 30*time.Minute {
		t.Errorf("%v more than an hour later", passed)
	}
}
