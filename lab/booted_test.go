package lab

import (
	"context"
	"errors"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"godwit/agent/api"
	"godwit/agent/config"
)

// TestGuestThatIsNotUp: a guest whose agent did not answer in time, as it does once the guest is up, is told by its
// name; what else kept it from starting is told as it is.
func TestGuestThatIsNotUp(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "agent.sock")
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	client := api.NewClient(socket)
	defer client.Close()
	ctx, cancel := context.WithDeadline(t.Context(), time.Now())
	defer cancel()
	_, err = client.StartGuest(ctx, config.Description{Name: "web"})
	if got := booted("web", err); got == nil || got.Error() != "guest web was not up within 4m0s" {
		t.Errorf("%v of %v", got, err)
	}
	full := errors.New("start guest web: no space left")
	if got := booted("web", full); !errors.Is(got, full) || strings.Contains(got.Error(), "within") {
		t.Error(got)
	}
	if got := booted("web", nil); got != nil {
		t.Error(got)
	}
}
