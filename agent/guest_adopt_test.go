package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"godwit/agent/agenttest"
	"godwit/agent/care"
	"godwit/agent/config"
	"godwit/agent/guests"
	"godwit/agent/limits"
	"godwit/migration"
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

// TestAdoptedGuestThatIsSilent: where nobody answers on the channel of a guest, whoever adopts it is told what to start
// in it, and how it can be adopted without.
func TestAdoptedGuestThatIsSilent(t *testing.T) {
	for agent, program := range map[string]string{"": "godwit-guest", config.AgentQGA: "qemu-ga"} {
		a, g := bareAgent(t, &config.Config{}), guests.New(care.Held{}, nil)
		g.Remember(func(h *care.Held) {
			h.Description = config.Description{Name: "web", Channel: "/run/web.channel", Agent: agent}
		})
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		err := a.learn(ctx, g)
		cancel()
		agenttest.Refused(t, program, err, migration.CodeGuest, "no answer on its channel /run/web.channel", "; start "+program+" in it, or ",
			"drop channel and agent, name its addresses, and write network: tunnel (docs/guest.md)")
	}
}

// TestNameOfOneThatIsLetGo: nobody gets the name of an adopted guest before its directory is gone: it would be that of
// who has the name then, and removed with what is in it.
func TestNameOfOneThatIsLetGo(t *testing.T) {
	a := bareAgent(t, &config.Config{Host: "rome"})
	g := guests.New(care.Held{Description: config.Description{Name: "web", QMP: "/run/web.sock"}, Dir: a.guestDir("web", "1"), Epoch: 1}, nil)
	if err := errors.Join(os.MkdirAll(g.Held().Dir, 0o700), a.guests.Save(g)); err != nil {
		t.Fatal(err)
	}
	for n := range 300 { // which takes a moment to remove
		if err := os.WriteFile(filepath.Join(g.Held().Dir, fmt.Sprint(n)), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	gone := make(chan error, 1)
	go func() { gone <- a.letGo(g) }()
	for a.guests.NameFree("web") != nil {
		runtime.Gosched()
	}
	if _, err := os.Stat(g.Held().Dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("its directory is there still: %v", err)
	}
	if err := <-gone; err != nil {
		t.Error(err)
	}
}

// TestAdoptedWithItsHome: a guest is not taken with an address that could never come home, as its home has another
// subnet, or is not one of this site, whose the address is; with one of a good home it is, also of one that nobody here
// knows, beside another of its site that is known or not.
func TestAdoptedWithItsHome(t *testing.T) {
	for _, c := range []struct{ addr, home, word string }{
		{"10.2.1.20/24", "", ""},
		{"10.2.1.20/24", "rome", ""},
		{"10.2.1.20/24", "rome2", ""},
		{"10.3.1.20/24", "oslo", ""},
		{"10.3.1.20/24", "oslo2", ""},
		{"10.9.1.20/24", "cairo", ""},
		{"10.3.1.20/24", "", "address 10.3.1.20/24 is not of this site's subnet; name its home"},
		{"10.2.1.20/24", "nowhere", `of the guests' subnet 10.2.1.0/24 of this host, and not of "nowhere"; mend addresses[].home`},
		{"10.3.1.20/24", "paris", "not in the guests' subnet 10.1.1.0/24 of its home paris"},
		{"10.2.1.20/24", "oslo", "not in the guests' subnet 10.3.1.0/24 of its home oslo"},
		{"10.9.1.20/24", "far cairo", `"far cairo" is no host's name`},
	} {
		a := between(t)
		g := guests.New(care.Held{Description: config.Description{Name: "web", Network: "tunnel", Addresses: []migration.Address{
			{Prefix: netip.MustParsePrefix(c.addr), Home: c.home},
		}}}, nil)
		refusedBy(t, c.addr+" of "+c.home, a.learn(t.Context(), g), c.word)
	}
}
