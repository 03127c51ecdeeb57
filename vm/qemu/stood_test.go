package qemu

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"godwit/vm"
)

// TestStopOfOneThatStands: a guest that did not run before was not stopped by us, and its QEMU is not asked to.
func TestStopOfOneThatStands(t *testing.T) {
	for status, stood := range map[string]bool{"paused": true, "io-error": true, "finish-migrate": true, "running": false} {
		f, p := newFake(t, "7.2.22") // which may have stopped it for its switchover
		f.first = func(command, _ string) (string, bool) {
			if command == "query-status" {
				return fmt.Sprintf(`{"status": %q}`, status), true
			}
			return "{}", true
		}
		err := p.Stop(t.Context())
		if asked := slices.Contains(f.log, "stop"); err == nil || errors.As(err, new(vm.StoodError)) != stood || asked == stood {
			t.Errorf("%s: %v; it was asked to stop it: %v", status, err, asked)
		}
	}
}

// TestStopThatWasNotSent: whoever ends a Stop before its QEMU has said how the guest is has not stopped it.
func TestStopThatWasNotSent(t *testing.T) {
	f, p := newFake(t, "10.0.2")
	ctx, end := context.WithCancel(t.Context())
	f.first = func(command, _ string) (string, bool) {
		if command == "stop" {
			t.Error("it was asked to stop it")
		}
		end()
		return "", false
	}
	if err := p.Stop(ctx); !errors.Is(err, vm.ErrUnasked) || !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// TestStopWithoutAnAnswer: one that was sent may have been heard.
func TestStopWithoutAnAnswer(t *testing.T) {
	f, p := newFake(t, "10.0.2")
	ctx, end := context.WithCancel(t.Context())
	f.first = func(command, _ string) (string, bool) {
		if command == "query-status" {
			return `{"status": "running"}`, true
		}
		end()
		return "", false
	}
	if err := p.Stop(ctx); errors.Is(err, vm.ErrUnasked) || !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}
