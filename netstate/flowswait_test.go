package netstate

import (
	"testing"
	"time"

	"godwit/internal/need"
)

// TestFlowsHoldUpNobody: a list of a guest's flows, which anybody may make long, waits for no flip, and none for it.
func TestFlowsHoldUpNobody(t *testing.T) {
	need.Root(t)
	mu.Lock()
	defer mu.Unlock()
	done := make(chan error, 1)
	go func() {
		_, err := Flows("web")
		done <- err
	}()
	select {
	case err := <-done:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(5 * time.Second):
		t.Error("it waits while another guest's state is changed")
	}
}
