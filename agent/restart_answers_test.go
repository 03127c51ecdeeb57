package agent

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"godwit/agent/care"
	"godwit/agent/guests"
	"godwit/agent/limits"
	"godwit/agent/statefile"
	"godwit/migration"
)

const asQEMU = "GODWIT_TEST_QMP" // the socket of a test's process that passes for a QEMU

// TestPassesForQEMU is none: it is the process of answersLate.
func TestPassesForQEMU(*testing.T) {
	path := os.Getenv(asQEMU)
	if path == "" {
		return
	}
	ln, err := net.Listen("unix", path)
	if err != nil {
		panic(err)
	}
	fmt.Println("listens")
	in := bufio.NewReader(os.Stdin)
	if _, err := in.ReadString('\n'); err != nil {
		return
	}
	go func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			go speakQMP(conn)
		}
	}()
	in.ReadString('\n') //nolint:errcheck // until whoever began it ends
}

// speakQMP is a QEMU of a guest that is paused.
func speakQMP(conn net.Conn) {
	fmt.Fprintln(conn, `{"QMP": {"version": {"qemu": {"major": 10, "minor": 0, "micro": 2}}, "capabilities": ["oob"]}}`)
	for lines := bufio.NewScanner(conn); lines.Scan(); {
		var req struct {
			Execute string `json:"execute"`
			OOB     string `json:"exec-oob"`
			ID      int    `json:"id"`
		}
		if json.Unmarshal(lines.Bytes(), &req) != nil {
			return
		}
		answer := map[string]string{"query-status": `{"status": "paused", "running": false}`, "query-migrate": `{"status": "none"}`}[req.Execute]
		if answer == "" {
			answer = "{}"
		}
		fmt.Fprintf(conn, `{"return": %s, "id": %d}`+"\n", answer, req.ID)
	}
}

// answersLate makes a QEMU of guest web that lives, and answers nobody before speak.
func answersLate(t *testing.T, a *Agent) (h care.Held, speak func()) {
	t.Helper()
	h = goodHeld(a.config.Run)
	h.Description.Start = []string{"qemu", "{dir}", "{qmp}"}
	if err := os.MkdirAll(h.Dir, 0o700); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(os.Args[0], "-test.run=^TestPassesForQEMU$")
	cmd.Args[0] = "qemu-system-none"
	cmd.Env = append(os.Environ(), asQEMU+"="+filepath.Join(h.Dir, "qmp.sock"))
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Kill() //nolint:errcheck // it may have ended
		cmd.Wait()         //nolint:errcheck // it was killed
	})
	if _, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	return h, func() { fmt.Fprintln(in) } //nolint:errcheck // seen by what comes of it
}

// TestQEMUThatAnswersLate: when a QEMU answers that said nothing as the agent started, its guest is under care again,
// as the one that it was, and its migration goes on with that, and has it from the first moment.
func TestQEMUThatAnswersLate(t *testing.T) {
	const id = "m-00000001"
	adopt := limits.Adopt.For
	defer func() { limits.Adopt.For = adopt }()
	limits.Adopt.For = time.Second // it is asked again
	for name, at := range map[string]migration.Effect{"no migration": "", "let go": migration.Release, "to be undone": migration.CopyMemory} {
		t.Run(name, func(t *testing.T) {
			a := startedAgain(t)
			h, speak := answersLate(t, a)
			if err := statefile.Write(filepath.Join(a.config.StatePath("guests"), "web.json"), h); err != nil {
				t.Fatal(err)
			}
			if at != "" {
				journalOf(t, a, id, journalled(id, "berlin", sourceDoing(t, at)))
			}
			a.resumeMigrations(a.ctx, a.readopt(a.ctx))
			if _, silent := a.guests.Silent("web"); !silent || found(a.guests, "web") != nil {
				t.Fatalf("it is waited for: %v, under care: %v", silent, found(a.guests, "web"))
			}
			speak()
			waitFor(t, "it is under care", func() bool { return found(a.guests, "web") != nil })
			g := found(a.guests, "web")
			if busy := g.Migration(); at == migration.Release && busy != id {
				t.Errorf("busy with %q", busy)
			}
			waitFor(t, "nobody waits for it", func() bool { _, silent := a.guests.Silent("web"); return !silent })
			switch at {
			case migration.Release:
				waitFor(t, "it is in doubt", func() bool { rep, ok := a.records.Report(id); return ok && rep.Outcome == migration.InDoubt })
				a.mu.Lock()
				m := a.outgoing[id]
				a.mu.Unlock()
				if m == nil || m.guest != g || g.Migration() != id {
					t.Errorf("gone on with: %+v, busy with %q", m, g.Migration())
				}
			case migration.CopyMemory:
				waitFor(t, "it is undone", func() bool { _, ok, _ := a.records.History(id); return ok && g.Migration() == "" })
			}
			if !g.Alive() || found(a.guests, "web") != g || g.Held().Number != h.Number || unreadOf(a, id) != "" {
				t.Errorf("lives: %v, held %+v; %q", g.Alive(), g.Held(), unreadOf(a, id))
			}
			waitFor(t, "its name is its own alone", func() bool {
				return len(a.guests.Expected()) == 0 && a.guests.Expect(guests.New(care.Held{Description: h.Description}, nil)) != nil
			})
		})
	}
}
