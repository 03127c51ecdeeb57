package qmp

import (
	"bufio"
	"context"
	"io"
	"net"
	"strings"
	"testing"
	"time"
	"unicode"
)

// FuzzClient: whatever stands behind a socket says, a client ends with it, and what it says of that is one line that
// can be shown.
func FuzzClient(f *testing.F) {
	const (
		hello = `{"QMP": {"version": {"qemu": {"micro": 2, "minor": 0, "major": 10}}, "capabilities": ["oob"]}}` + "\n"
		ok    = `{"return": {}, "id": 1}` + "\n"
	)
	nines, long := strings.Repeat("9", 9000), strings.Repeat("x", 9000)
	f.Add(hello, ok, `{"event": "STOP", "timestamp": {"seconds": 1}}`+"\n"+`{"return": 7, "id": 2}`+"\n")
	f.Add(hello, ok, `{"return": `+nines+`, "id": 2}`+"\n")
	f.Add(hello, ok, `{"return": {"`+long+`": "\u001b"}, "id": 2}`+"\n")
	f.Add(hello, ok, `{"error": {"class": "GenericError", "desc": "\u001b[31m\n`+long+`"}, "id": 2}`+"\n")
	f.Add(hello, `{"return": {}, "id": "libvirt-1"}`+"\n"+ok, `{"id": -2}`+"\n"+`{"id": 2.0}`+"\n"+`{"return": null, "id": 2}`+"\n")
	f.Add(`{"QMP": {"version": {"qemu": {"major": `+nines+"}}}}\n", "", "")
	f.Add("\x1b[31mnothing of QEMU's\x9b\n", "", "")
	f.Add(`{"event": "`+long+`"}`+"\n"+`{"id": 5}`+"\n{}\n", "", "")
	f.Fuzz(func(t *testing.T, greeting, first, second string) {
		ours, theirs := net.Pipe()
		asked := make(chan struct{}, 16)
		go func() {
			for lines := bufio.NewScanner(theirs); lines.Scan(); {
				asked <- struct{}{}
			}
		}()
		go func() {
			defer theirs.Close()
			for _, said := range []string{greeting, first, second} {
				if _, err := io.WriteString(theirs, said); err != nil {
					return
				}
				select {
				case <-asked:
				case <-time.After(100 * time.Millisecond): // it waits for more of a greeting, or of an answer
				}
			}
		}()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		c, err := newFrom(ctx, ours, 0)
		if err != nil {
			showable(t, err)
			return
		}
		events := c.Events(ctx)
		var n int
		if err := c.Do(ctx, "query-status", nil, &n); err != nil {
			showable(t, err)
		}
		c.Close() //nolint:errcheck // the other end may have ended
		for range events {
		}
		if ctx.Err() != nil {
			t.Errorf("%q: it did not end", greeting+first+second)
		}
	})
}

func showable(t *testing.T, err error) {
	t.Helper()
	if said := err.Error(); len(said) > 4096 || strings.ContainsFunc(said, func(r rune) bool { return !unicode.IsPrint(r) }) {
		t.Errorf("%.5000q", said)
	}
}
