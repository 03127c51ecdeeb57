package main

import (
	"bytes"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// eventsAgent answers on a socket as an agent whose record of m-00000001 was born then; until it is closed.
func eventsAgent(t *testing.T, socket string, born int, over bool, asked chan<- string) *http.Server {
	t.Helper()
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/migrations/m-00000001/events", func(w http.ResponseWriter, r *http.Request) {
		after := r.FormValue("after")
		select {
		case asked <- after:
		default:
		}
		if after != "0" && !over {
			<-r.Context().Done() // nothing more happens
			return
		}
		if after != "0" {
			fmt.Fprintf(w, `{"born": %d, "over": true}`, born)
			return
		}
		fmt.Fprintf(w, `{"born": %d, "events": [{"n": 1, "kind": "note", "text": "of agent %d"}, {"n": 2, "kind": "note", "text": "second"}]}`, born, born)
	})
	mux.HandleFunc("GET /v1/migrations/m-00000001", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, `{"id": "m-00000001", "outcome": "completed"}`)
	})
	server := &http.Server{Handler: mux}
	go server.Serve(listener) //nolint:errcheck // until it is closed
	t.Cleanup(func() { server.Close() })
	return server
}

// TestWatchOutlivesAnAgent: a migration goes on when its agent is started again, and so does who watches it.
func TestWatchOutlivesAnAgent(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "agent.sock")
	asked := make(chan string, 10)
	first := eventsAgent(t, socket, 1, false, asked)
	var out, errOut bytes.Buffer
	status := make(chan int, 1)
	go func() { status <- run([]string{"watch", "m-00000001", "--socket", socket}, &out, &errOut) }()
	for seen := false; !seen; {
		select {
		case after := <-asked:
			seen = after != "0" // it has seen what there was
		case got := <-status:
			t.Fatalf("status %d, %q", got, errOut.String())
		case <-time.After(20 * time.Second):
			t.Fatal("nobody asks")
		}
	}
	first.Close()
	time.Sleep(500 * time.Millisecond)
	eventsAgent(t, socket, 2, true, nil)
	select {
	case got := <-status:
		if text := out.String(); got != 0 || !strings.Contains(text, "of agent 1") || !strings.Contains(text, "of agent 2") {
			t.Errorf("status %d, %q, %q", got, text, errOut.String())
		}
	case <-time.After(20 * time.Second):
		t.Error("still watching")
	}
}

// TestNothingEmpty: what a script passes on of a variable that is not set is refused.
func TestNothingEmpty(t *testing.T) {
	for _, args := range [][]string{
		{"watch", ""}, {"abort", ""}, {"migrate", "", "b"}, {"lab", "run", "x.yaml", "--out", ""}, {"demo", "--out="},
	} {
		var out, errOut bytes.Buffer
		if got := run(args, &out, &errOut); got != exitUsage || strings.Count(errOut.String(), "\n") != 1 {
			t.Errorf("%q: status %d, %q", args, got, errOut.String())
		}
	}
}

// TestOutlivesItsReader: a lab whose output nobody reads any more keeps its report, and its exit status.
func TestOutlivesItsReader(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	r.Close()
	command := exec.Command("/proc/self/exe", "lab", "check", filepath.Join(t.TempDir(), "none.yaml"))
	command.Env, command.Stderr = append(os.Environ(), asGodwit+"=1"), w
	err = command.Run()
	w.Close()
	if got := command.ProcessState.ExitCode(); got != exitUsage {
		t.Errorf("status %d, %v", got, err)
	}
}

// TestHangup: a command whose terminal is closed cleans up, and one that was begun by nohup goes on.
func TestHangup(t *testing.T) {
	heard := make(chan os.Signal, 1)
	signal.Notify(heard, syscall.SIGHUP) // where this test was begun by nohup, what it begins is not
	defer signal.Stop(heard)
	for _, c := range []struct {
		begin string
		ends  bool
	}{{"exec", true}, {"exec nohup", false}} {
		listener, err := net.Listen("unix", filepath.Join(t.TempDir(), "agent.sock"))
		if err != nil {
			t.Fatal(err)
		}
		defer listener.Close()
		command := exec.Command("/bin/sh", "-c", c.begin+" /proc/self/exe watch m-00000001 --socket "+listener.Addr().String())
		command.Args[2] = strings.Replace(command.Args[2], "/proc/self/exe", os.Args[0], 1)
		command.Env = append(os.Environ(), asGodwit+"=1")
		if err := command.Start(); err != nil {
			t.Fatal(err)
		}
		conn, err := listener.Accept() // it asks, and would wait for long
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		if err := command.Process.Signal(syscall.SIGHUP); err != nil {
			t.Fatal(err)
		}
		ended := make(chan struct{})
		go func() { command.Wait(); close(ended) }() //nolint:errcheck // its status is its own
		patience := time.Second
		if c.ends {
			patience = 20 * time.Second
		}
		select {
		case <-ended:
			if !c.ends || !command.ProcessState.Exited() {
				t.Errorf("%s: ended, %v", c.begin, command.ProcessState)
			}
		case <-time.After(patience):
			if c.ends {
				t.Errorf("%s: goes on", c.begin)
			}
			command.Process.Kill() //nolint:errcheck // it is ours
			<-ended
		}
	}
}
