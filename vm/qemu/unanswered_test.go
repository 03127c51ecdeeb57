package qemu

import (
	"context"
	"errors"
	"testing"
)

// TestMigrateWithoutAnAnswer: a QEMU that does not answer in time may have begun to send all the same: on an error
// nothing is under way.
func TestMigrateWithoutAnAnswer(t *testing.T) {
	f, p := newFake(t, "10.0.2")
	f.set(func() { f.status, f.mute = "active", `"uri"` })
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	done := make(chan error)
	go func() { done <- p.Migrate(ctx, held) }()
	begun := f.said(t, "migrate {")
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.status != "cancelled" || f.busy {
		t.Errorf("the migration that begun as command %d is %s:\n%q", begun, f.status, f.log)
	}
}
