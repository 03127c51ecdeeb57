package lasting_test

import (
	"errors"
	"net"
	"slices"
	"syscall"
	"testing"
	"testing/synctest"

	"godwit/internal/lasting"
	"godwit/internal/lasting/lastingtest"
)

// TestListenerGoesOn: whatever is missing, the next connection is taken when it is there; that is said, and not each time.
func TestListenerGoesOn(t *testing.T) {
	for _, missing := range []error{syscall.EMFILE, syscall.ENFILE, syscall.ENOMEM, syscall.ENOBUFS} {
		synctest.Test(t, func(t *testing.T) {
			ours, theirs := net.Pipe()
			defer ours.Close()
			defer theirs.Close()
			said := 0
			host := lastingtest.New(ours, slices.Repeat([]error{missing}, 90*10)...)
			ln := lasting.Listener(host, func(err error) {
				if said++; !errors.Is(err, missing) {
					t.Error(err)
				}
			})
			if conn, err := ln.Accept(); conn != ours || err != nil || said != 2 {
				t.Errorf("%v: %v, %v; said %d times in a minute and a half", missing, conn, err, said)
			}
			host.Close()
			if _, err := ln.Accept(); !errors.Is(err, net.ErrClosed) {
				t.Errorf("closed: %v", err)
			}
		})
	}
}
