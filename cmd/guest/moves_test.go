package main

import (
	"context"
	"fmt"
	"syscall"
	"testing"
	"testing/synctest"

	"godwit/netstate/mptcp"
)

// TestMovesAreWatchedAgain: clients that move are looked after by a guest that had no memory or descriptor left for
// that at first, when it has, and again where the kernel's word ends; and by no kernel that has no MPTCP.
func TestMovesAreWatchedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		comes := []error{fmt.Errorf("open mptcp events: %w", syscall.EMFILE), syscall.ENOMEM, nil, fmt.Errorf("open mptcp events: %w", mptcp.ErrUnsupported)}
		begun := 0
		watchMoves(t.Context(), func(context.Context) error {
			begun++
			return comes[begun-1]
		})
		if begun != len(comes) {
			t.Errorf("begun %d times of %d", begun, len(comes))
		}
	})
}
