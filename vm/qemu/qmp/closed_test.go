package qmp

import (
	"context"
	"errors"
	"net"
	"os"
	"syscall"
	"testing"
)

// TestWriteToAnEndedQEMU: the client's writer may meet QEMU's end before its reader does; it is told as the
// same. A write that only takes too long is no end: QEMU does not answer.
func TestWriteToAnEndedQEMU(t *testing.T) {
	for _, test := range []struct {
		fails error
		ended bool
	}{
		{syscall.EPIPE, true}, {syscall.ECONNRESET, true}, {net.ErrClosed, true},
		{os.ErrDeadlineExceeded, false},
	} {
		ours, theirs := net.Pipe()
		defer ours.Close()
		defer theirs.Close()
		c := &Client{conn: unwritable{ours, test.fails}, waiting: map[uint64]chan reply{}}
		err := c.Do(t.Context(), "query-status", nil, nil)
		if !errors.Is(err, test.fails) || errors.Is(err, ErrClosed) != test.ended {
			t.Errorf("a write that fails by %v: %v, want it to be an end: %v", test.fails, err, test.ended)
		}
		if late := errors.Is(err, context.DeadlineExceeded); late == test.ended {
			t.Errorf("a write that fails by %v: %v, which is taken for a QEMU that does not answer: %v", test.fails, err, late)
		}
	}
}

// unwritable is a connection whose writes fail.
type unwritable struct {
	net.Conn
	fails error
}

func (u unwritable) Write([]byte) (int, error) { return 0, u.fails }
