package tunnel

import (
	"encoding/json"
	"errors"
	"os"
	"testing"
	"time"

	"godwit/internal/child"
)

// TestNobodyHeardThatItStands: a tunnel whose agent was killed before it had heard that it stands leaves nothing: no
// detour has it, and the next agent may have looked for such tunnels before its socket was there.
func TestNobodyHeardThatItStands(t *testing.T) {
	n := pathNet(t)
	cfg := ends(t, WireGuard, "10.9.1.2:51820", "10.9.2.2:51820")[0]
	input, err := json.Marshal(cfg)
	if err != nil {
		t.Fatal(err)
	}
	cmd := child.Command("tunnel", cfg.Name)
	in, inErr := cmd.StdinPipe()
	out, w, err := os.Pipe()
	if err = errors.Join(inErr, err); err != nil {
		t.Fatal(err)
	}
	if err := out.Close(); err != nil { // before it begins: it may be ready before this goes on
		t.Fatal(err)
	}
	cmd.Stdout, cmd.Dir = w, "/"
	n.Do("a", cmd.Start)
	_, err = in.Write(input)
	if err = errors.Join(err, w.Close(), in.Close()); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	select {
	case <-ended:
	case <-time.After(20 * time.Second):
		t.Error("it stands, and nobody knows of it")
		cmd.Process.Kill() //nolint:errcheck // it has ended then
		<-ended
	}
	left, err := os.ReadDir(cfg.Dir)
	if err != nil || len(left) > 0 || exists(n.Net, cfg.Name) {
		t.Errorf("left: %v, %v, a device: %v", left, err, exists(n.Net, cfg.Name))
	}
}
