package qmp

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"testing"
	"testing/synctest"
	"time"
)

// deaf is a QEMU whose main loop stands still until it is yanked: it reads until eight commands wait for it, as QEMU
// does (QEMU docs/interop/qmp-spec.rst, Out-of-band execution), and answers out-of-band ones.
func deaf(conn net.Conn) {
	const most = 8
	fmt.Fprintln(conn, `{"QMP": {"version": {"qemu": {"major": 10, "minor": 0, "micro": 2}}, "capabilities": ["oob"]}}`)
	var queue []uint64
	stands := false
	for lines := bufio.NewScanner(conn); len(queue) < most && lines.Scan(); {
		var r request
		if json.Unmarshal(lines.Bytes(), &r) != nil {
			return
		}
		queue = append(queue, r.ID)
		if r.OOB == "" && stands {
			continue
		}
		for _, id := range queue { // out of order, which nobody minds
			fmt.Fprintf(conn, `{"return": {}, "id": %d}`+"\n", id)
		}
		queue, stands = nil, r.OOB == ""
	}
}

// TestCrowdBeforeADeafQEMU: however many ask a QEMU that answers nobody, and give up, an out-of-band command is heard;
// and after it they are answered again.
func TestCrowdBeforeADeafQEMU(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ours, theirs := net.Pipe()
		go deaf(theirs)
		c, err := New(t.Context(), ours)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		defer theirs.Close()
		for range 20 {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			if err := c.Do(ctx, "query-status", nil, nil); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("a QEMU that stands still: %v", err)
			}
			cancel()
		}
		if err := c.DoOOB(t.Context(), "yank", nil, nil); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if len(c.flight) > 0 || len(c.inBand) > 0 {
			t.Errorf("%d commands wait, and %d have a place, of a QEMU that has answered all", len(c.flight), len(c.inBand))
		}
	})
}
