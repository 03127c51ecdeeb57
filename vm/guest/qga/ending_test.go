package qga

import (
	"bufio"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"godwit/internal/need"
	"godwit/vm/guest"
)

// runner is a guest's agent that runs here what it is told to run. It answers that it has begun when begun lets it.
func runner(t *testing.T, begun func()) *Client {
	t.Helper()
	var mu sync.Mutex
	ran, number := map[int64]*exec.Cmd{}, int64(0)
	ended, out := map[int64]bool{}, map[int64]*strings.Builder{}
	answer := func(execute string, arguments json.RawMessage, conn net.Conn) {
		var p struct {
			ID, PID int64
			Path    string
			Arg     []string
			Env     []string
		}
		_ = json.Unmarshal(arguments, &p)
		mu.Lock()
		defer mu.Unlock()
		switch execute {
		case "guest-sync-delimited":
			synced(p.ID, conn)
		case "guest-exec":
			command, said := exec.Command(p.Path, p.Arg...), &strings.Builder{}
			command.Stdout = said
			if command.Env = p.Env; p.Env == nil {
				command.Env = []string{"PATH=" + os.Getenv("PATH")}
			}
			if err := command.Start(); err != nil {
				t.Error(err)
				return
			}
			number = int64(command.Process.Pid)
			id := number
			ran[id], out[id] = command, said
			go func() {
				command.Wait() //nolint:errcheck // its status is asked for
				mu.Lock()
				ended[id] = true
				mu.Unlock()
			}()
			if p.Env != nil {
				begun()
			}
			fmt.Fprintf(conn, `{"return": {"pid": %d}}`+"\n", id)
		case "guest-exec-status":
			said := ""
			if ended[p.PID] {
				said = base64.StdEncoding.EncodeToString([]byte(out[p.PID].String()))
			}
			fmt.Fprintf(conn, `{"return": {"exited": %v, "out-data": %q}}`+"\n", ended[p.PID], said)
		}
	}
	socket := filepath.Join(t.TempDir(), "qga.sock")
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	over := make(chan struct{})
	go func() {
		defer close(over)
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		for in := bufio.NewScanner(conn); in.Scan(); {
			var request struct {
				Execute   string
				Arguments json.RawMessage
			}
			if json.Unmarshal([]byte(strings.TrimPrefix(in.Text(), "\xff")), &request) == nil {
				answer(request.Execute, request.Arguments, conn)
			}
		}
	}()
	c, err := Dial(t.Context(), socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		c.Close()
		listener.Close()
		<-over
		for _, command := range ran {
			command.Process.Kill() //nolint:errcheck // it may have ended
		}
	})
	return c
}

// TestCutOffScriptIsEnded: a script that is not waited for any more, as a limit has passed or its caller has gone on,
// does not go on in the guest; nor does what it has started, be it in a session of its own. So it is where the agent's
// answer that it has begun came too late, and where the connection is closed at once.
func TestCutOffScriptIsEnded(t *testing.T) {
	need.Program(t, "grep")
	need.Program(t, "setsid")
	for name, c := range map[string]struct {
		late, closes bool
		call         func(ctx context.Context, c *Client, script string) error
	}{
		"its caller has gone on": {call: func(ctx context.Context, c *Client, script string) error {
			_, err := c.do(ctx, "configure", script)
			return err
		}},
		"and closed": {closes: true, call: func(ctx context.Context, c *Client, script string) error {
			_, err := c.do(ctx, "configure", script)
			return err
		}},
		"before it was answered": {late: true, call: func(ctx context.Context, c *Client, script string) error {
			_, err := c.do(ctx, "configure", script)
			return err
		}},
		"a limit has passed": {call: func(_ context.Context, c *Client, script string) error {
			e, err := c.Exec(context.Background(), guest.Exec{Command: script, TimeoutMS: 200})
			if err == nil && !e.TimedOut {
				err = fmt.Errorf("it has ended: %+v", e)
			}
			if err == nil {
				err = context.Canceled // as the others
			}
			return err
		}},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			started := func() []string {
				found, err := filepath.Glob(filepath.Join(dir, "pid-*"))
				if err != nil {
					t.Fatal(err)
				}
				return found
			}
			until := func(what string, is func() bool) {
				t.Helper()
				for end := time.Now().Add(20 * time.Second); !is(); time.Sleep(time.Millisecond) {
					if time.Now().After(end) {
						t.Fatal("never " + what)
					}
				}
			}
			all := func() bool { return len(started()) == 3 }
			cut := func() {
				for !all() && ctx.Err() == nil {
					time.Sleep(time.Millisecond)
				}
				cancel()
			}
			client := runner(t, func() {
				if c.late {
					cut()
					time.Sleep(10 * time.Millisecond) // the caller has gone on
				}
			})
			go cut()
			script := fmt.Sprintf("cd %s; setsid sleep 600 & echo >pid-$!; sleep 600 & echo >pid-$!; echo >pid-$$; wait; wait", dir)
			if err := c.call(ctx, client, script); err == nil {
				t.Fatal("it has ended by itself")
			}
			if c.closes {
				client.Close()
			}
			for _, file := range started() {
				pid := strings.TrimPrefix(filepath.Base(file), "pid-")
				until("ended: "+pid, func() bool {
					line, err := os.ReadFile("/proc/" + pid + "/cmdline") // a zombie's is empty
					return err != nil || len(line) == 0
				})
			}
			if !c.closes {
				if e, err := client.Exec(t.Context(), guest.Exec{Command: "echo well"}); err != nil || e.Stdout != "well\n" {
					t.Errorf("afterwards: %+v, %v", e, err)
				}
			}
		})
	}
}
