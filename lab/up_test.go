package lab

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"testing"

	"godwit/agent/api"
	"godwit/agent/config"
	"godwit/internal/child"
	"godwit/lab/scenario"
	"godwit/lab/topo"
)

const upWorld = `
name: up
sites:
  - {name: montreal, guest_net: {v4: 10.1.1.0/24}, uplinks: [{name: public, rate: 200mbit, delay: 2ms}]}
  - {name: sanjose, guest_net: {v4: 10.2.1.0/24}, uplinks: [{name: public, rate: 200mbit, delay: 2ms}]}
clients:
  - {name: phone, at: montreal}
`

func init() { child.Register("ups-a-lab", upsALab) }

// upsALab is `godwit lab up`, but for its words.
func upsALab([]string) int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	s, err := scenario.Parse("up", []byte(upWorld))
	if err == nil {
		err = Up(ctx, s, Options{}, false, func(st Standing) {
			json.NewEncoder(os.Stdout).Encode(st) //nolint:errcheck // the test tells
		})
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// A lab that is up says how to reach its parts, and is gone when somebody else takes it down.
func TestUpAndDown(t *testing.T) {
	guestsImage(t)
	cmd := child.Command("ups-a-lab")
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { end(cmd) })
	var up Standing
	if err := json.NewDecoder(out).Decode(&up); err != nil {
		t.Fatal(err)
	}
	if pid, ok := RunningLab(up.ID); !ok || pid != cmd.Process.Pid || pid != up.PID || len(up.Hosts) != 2 || len(up.Clients) != 1 {
		t.Errorf("lab %+v, kept by process %d", up, pid)
	}
	for _, h := range up.Hosts {
		info, err := api.NewClient(h.Socket).Host(t.Context())
		if err != nil || info.Host != h.Host || len(info.Neighbours) != 1 {
			t.Errorf("agent of %s: %+v, %v", h.Host, info, err)
		}
		if c, err := config.Load(h.Config); err != nil || c.Socket() != h.Socket {
			t.Errorf("configuration of %s: %v", h.Host, err)
		}
	}
	done, err := Down(t.Context(), []string{up.ID}, false)
	if err != nil || len(done.Removed) != 1 {
		t.Errorf("taken down: %+v, %v", done, err)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("`lab up` ended: %v", err)
	}
	if left := topo.Leftovers(up.ID); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
	if _, err := Down(t.Context(), []string{up.ID}, false); err == nil {
		t.Error("taken down twice: no error")
	}
}

// TestGuestsThatPeopleMoved: where a guest is that a person has moved by hand, its agent says; one that does not
// answer has those that it had.
func TestGuestsThatPeopleMoved(t *testing.T) {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/guests", func(w http.ResponseWriter, _ *http.Request) {
		json.NewEncoder(w).Encode([]api.GuestInfo{{Name: "web"}}) //nolint:errcheck // the client tells
	})
	r := aRun()
	r.hasWeb(t, http.NotFoundHandler())
	r.w.where["db"] = "a"
	r.w.agents["b"] = anAgent(t, "b", mux)
	r.findGuests()
	if web, db := r.w.where["web"], r.w.where["db"]; web != "b" || db != "a" {
		t.Errorf("web is on %s, db on %s", web, db)
	}
}
