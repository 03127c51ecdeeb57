package qmp

import (
	"bufio"
	"context"
	"encoding/json"
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
		late             []string // answers to others, before each to us
	}{
		{name: "at once", says: hello},
		{name: "after events and a late answer", says: event + "\n" + event + "\n" + `{"return": {}, "id": 7}` + "\n" + hello},
		{name: "after libvirt's answer", says: `{"return": {}, "id": "libvirt-7"}` + "\n" + hello},
		{name: "late answers after it", says: hello, late: []string{
			`{"return": {}, "id": "libvirt-7"}`, `{"id": 1, "error": {"class": "GenericError", "desc": "busy"}}`, `{"id": 2, "error": {"class": "GenericError", "desc": "busy"}}`, `{"return": {}}`,
		}},
		{name: "another protocol", says: `{"return": {}}`, want: "not a QMP socket"},
		{name: "events alone", says: strings.Repeat(event+"\n", linesBefore), want: "without end"},
		{name: "nothing", want: "closed"},
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
					for _, late := range test.late {
						fmt.Fprintln(theirs, late) //nolint:errcheck // the test ends
					}
					var ask request
					json.Unmarshal(asked.Bytes(), &ask)                          //nolint:errcheck // it is ours
					fmt.Fprintf(theirs, `{"return": {}, "id": %d}`+"\n", ask.ID) //nolint:errcheck // the test ends
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
			if err := c.Do(ctx, "stop", nil, nil); err != nil {
				t.Error(err)
			}
			if c.Version().Major != 10 {
				t.Errorf("version %v", c.Version())
			}
			c.Close()
		})
	}
}
