package qemu

import (
	"fmt"
	"net"
	"os/exec"
	"testing"
	"time"

	"godwit/vm/qemu/qmp"
)

// TestReasonOfTheEnd: a guest that powered off, and was booted anew in the same QEMU, has not ended by that when its QEMU is
// killed later.
func TestReasonOfTheEnd(t *testing.T) {
	const off = `{"event": "SHUTDOWN", "data": {"guest": true, "reason": "guest-shutdown"}}`
	const reset, resume = `{"event": "RESET", "data": {"guest": false, "reason": "host-qmp-system-reset"}}`, `{"event": "RESUME"}`
	for name, c := range map[string]struct {
		says []string
		want string
	}{
		"powered off":               {[]string{off}, "guest-shutdown"},
		"powered off, booted anew":  {[]string{off, reset, resume}, ""},
		"and powered off once more": {[]string{off, reset, resume, off}, "guest-shutdown"},
		"killed":                    {nil, ""},
	} {
		cmd := exec.Command("cat")
		alive, err := cmd.StdinPipe()
		if err == nil {
			err = cmd.Start()
		}
		if err != nil {
			t.Fatal(err)
		}
		here, there := net.Pipe()
		f := &fake{conn: there}
		go f.serve("10.0.2")
		client, err := qmp.New(t.Context(), here)
		if err != nil {
			t.Fatal(err)
		}
		p, err := watch(cmd.Process.Pid, "", client)
		if err != nil {
			t.Fatal(err)
		}
		p.begin(cmd)
		for _, line := range c.says {
			if _, err := fmt.Fprintln(there, line); err != nil {
				t.Fatal(err)
			}
		}
		there.Close()
		alive.Close()
		select {
		case <-p.Done():
		case <-time.After(10 * time.Second):
			t.Fatal(name, ": its end is not seen")
		}
		if got := p.Exit().Reason; got != c.want {
			t.Errorf("%s: ended by %q, want %q", name, got, c.want)
		}
		p.Close()
	}
}
