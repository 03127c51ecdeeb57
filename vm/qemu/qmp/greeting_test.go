package qmp

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"
)

// TestGreeting: what was meant for the client before may come before the greeting. Something that
// never greets is no QMP socket.
func TestGreeting(t *testing.T) {
	const hello = `{"QMP": {"version": {"qemu": {"micro": 2, "minor": 0, "major": 10}, "package": ""}, "capabilities": ["oob"]}}`
	const event = `{"timestamp": {"seconds": 1, "microseconds": 2}, "event": "MIGRATION_PASS", "data": {"pass": 3}}`
	for _, test := range []struct {
		name, says, want string
	}{
		{"at once", hello, ""},
		{"after events and a late answer", event + "\n" + event + "\n" + `{"return": {}, "id": 7}` + "\n" + hello, ""},
		{"another protocol", `{"return": {}}`, "not a QMP socket"},
		{"events alone", strings.Repeat(event+"\n", linesBefore), "without end"},
		{"nothing", "", "closed"},
	} {
		t.Run(test.name, func(t *testing.T) {
			ours, theirs := net.Pipe()
			go func() {
				defer theirs.Close()
				for line := range strings.Lines(test.says) {
					if _, err := fmt.Fprintln(theirs, strings.TrimSpace(line)); err != nil {
						return
					}
				}
				if test.want != "" {
					return
				}
				asked := bufio.NewScanner(theirs)
				for asked.Scan() {
					fmt.Fprintln(theirs, `{"return": {}, "id": 1}`) //nolint:errcheck // the test ends
				}
			}()
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			c, err := New(ctx, ours)
			if test.want != "" {
				if err == nil || !strings.Contains(err.Error(), test.want) {
					t.Fatalf("%v, want %q", err, test.want)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if c.Version().Major != 10 {
				t.Errorf("version %v", c.Version())
			}
			c.Close()
		})
	}
}
