package agent

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"godwit/agent/care"
	"godwit/agent/config"
	"godwit/agent/limits"
	"godwit/vm/guest"
)

// TestAdoptedGuestThatHangs: one that answers on its channel, and then nothing more, is refused; whoever asks does not
// wait for it.
func TestAdoptedGuestThatHangs(t *testing.T) {
	before := limits.AskGuest
	defer func() { limits.AskGuest = before }()
	limits.AskGuest.For = 100 * time.Millisecond
	g := talking(t, map[string]guest.Handler{"info": func(ctx context.Context, _ string, _ json.RawMessage) (any, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	}})
	g.Remember(func(h *care.Held) { h.Description.Channel = "/run/web.channel" })
	a := bareAgent(t, &config.Config{})
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if err := a.learn(ctx, g); err == nil || !strings.Contains(err.Error(), "limit ask_guest of 100ms passed") {
		t.Errorf("%v", err)
	}
}
