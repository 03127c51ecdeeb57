package qga

import (
	"bufio"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"godwit/vm/guest"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// agent is a port with a guest agent behind it, whose answers a test writes.
func agent(t *testing.T, answer func(command string, id int64, out net.Conn)) string {
	t.Helper()
	socket := filepath.Join(t.TempDir(), "qga.sock")
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		for in := bufio.NewScanner(conn); in.Scan(); {
			line := strings.TrimPrefix(in.Text(), "\xff")
			var request struct {
				Execute   string
				Arguments struct{ ID int64 }
			}
			if json.Unmarshal([]byte(line), &request) == nil {
				answer(request.Execute, request.Arguments.ID, conn)
			}
		}
	}()
	t.Cleanup(func() {
		listener.Close()
		<-ended
	})
	return socket
}

func synced(id int64, out net.Conn) { fmt.Fprintf(out, "\xff{\"return\": %d}\n", id) }

// TestSyncSkipsWhatIsOld: an answer to somebody before, the complaint about a half
// command, another one's sync.
func TestSyncSkipsWhatIsOld(t *testing.T) {
	socket := agent(t, func(command string, id int64, out net.Conn) {
		if command == "guest-sync-delimited" {
			fmt.Fprint(out, `{"return": {"pid": 7}}`+"\n"+`{"error": {"class": "GenericError", "desc": "JSON parse error"}}`+"\n")
			synced(id+1, out)
			fmt.Fprint(out, `{"return": {"half`)
			synced(id, out)
			return
		}
		fmt.Fprintln(out, `{"error": {"class": "GenericError", "desc": "The command guest-exec has been disabled"}}`)
	})
	c, err := Dial(t.Context(), socket)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_, err = c.Info(t.Context())
	var refused *guest.CallError
	if !errors.As(err, &refused) || !strings.Contains(err.Error(), "guest-exec has been disabled") {
		t.Errorf("an agent that may run nothing: %v", err)
	}
}

// TestAnsweredTwice: an agent that answers a command twice is asked anew, and what it said too much is taken for no
// later one's answer.
func TestAnsweredTwice(t *testing.T) {
	said := 0
	socket := agent(t, func(command string, id int64, out net.Conn) {
		if command == "guest-sync-delimited" {
			synced(id, out)
			return
		}
		said++
		answer := fmt.Sprintf(`{"return": {"pid": %d}}`+"\n", said)
		fmt.Fprint(out, answer+answer)
	})
	c, err := Dial(t.Context(), socket)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for want := int64(1); want < 4; want++ {
		var answer struct{ PID int64 }
		if err := c.execute(t.Context(), "guest-exec", nil, &answer); err != nil || answer.PID != want {
			t.Errorf("command %d got the answer to %d, %v", want, answer.PID, err)
		}
	}
}

// TestLyingAgent: one that has more NICs than any guest is an error that says so; so is a prefix that is none.
func TestLyingAgent(t *testing.T) {
	const one = `{"name": "eth0", "hardware-address": "52:54:00:00:00:0a"}`
	lyingAgent(t, strings.Repeat(one+",", 5000)+one, "5001 NICs")
	for _, bits := range []int{-1, 33} {
		lyingAgent(t, fmt.Sprintf(`{"name": "eth0", "hardware-address": "52:54:00:00:00:0a", "ip-addresses": [{"ip-address": "10.1.1.2", "prefix": %d}]}`, bits),
			fmt.Sprintf("10.1.1.2 with a prefix of %d bits", bits))
	}
}

func lyingAgent(t *testing.T, interfaces, want string) {
	t.Helper()
	if i, err := infoOf(t, ".\n.\n.", interfaces); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("%d NICs: %v, want %q", len(i.NICs), err, want)
	}
}

// TestLongInfo: lists of names of devices that are as long as an answer may be are taken apart once, and not for each
// NIC: a guest with thousands of both would keep a processor of its host busy for hours.
func TestLongInfo(t *testing.T) {
	const nics, names = 200, 100_000
	one := func(n int) string {
		return fmt.Sprintf(`{"name": "eth%d", "hardware-address": "52:54:00:00:00:0a"}`, n)
	}
	all := []string{one(0)}
	for n := 1; n < nics; n++ {
		all = append(all, one(n))
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	i, err := infoOf(t, ". eth7/disable_ipv6 "+strings.Repeat("x ", names)+"\n. eth8\n. eth9", strings.Join(all, ","))
	runtime.ReadMemStats(&after)
	if err != nil || len(i.NICs) != nics {
		t.Fatalf("%d NICs, %v", len(i.NICs), err)
	}
	for n, nic := range i.NICs {
		if nic.NoIPv6 != (n != 7) || nic.Above != (n == 8) || nic.Part != (n == 9) {
			t.Errorf("%+v", nic)
		}
	}
	if used := after.TotalAlloc - before.TotalAlloc; used > 64<<20 {
		t.Errorf("%d MiB were used up for %d names", used>>20, names)
	}
}

// infoOf is the Info of a guest whose kernel has these lists of devices, one a line, and whose agent says these interfaces.
func infoOf(t *testing.T, devices, interfaces string) (guest.Info, error) {
	t.Helper()
	return saying(t, status{Exited: true, Out: "6.1.0\nboot\n1.0\n1\n" + devices + "\n"}, interfaces).Info(t.Context())
}

// saying is a guest where what is run comes to that, and whose agent says these interfaces.
func saying(t *testing.T, came status, interfaces string) *Client {
	t.Helper()
	came.Out, came.Err = base64.StdEncoding.EncodeToString([]byte(came.Out)), base64.StdEncoding.EncodeToString([]byte(came.Err))
	said, err := json.Marshal(came)
	if err != nil {
		t.Fatal(err)
	}
	socket := agent(t, func(command string, id int64, out net.Conn) {
		switch command {
		case "guest-sync-delimited":
			synced(id, out)
		case "guest-exec":
			fmt.Fprintln(out, `{"return": {"pid": 7}}`)
		case "guest-exec-status":
			fmt.Fprintf(out, `{"return": %s}`+"\n", said)
		default:
			fmt.Fprintln(out, `{"return": [`+interfaces+`]}`)
		}
	})
	c, err := Dial(t.Context(), socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// TestLongWords: however much a guest says where something else was asked, no error is longer than a line, which people
// are shown and reports keep, and none moves a terminal.
func TestLongWords(t *testing.T) {
	long := strings.Repeat("\x1b[2J", 10_000)
	info := status{Exited: true, Out: "6.1.0\nboot\n1.0\n1\n.\n.\n."}
	for name, c := range map[string]struct {
		came       status
		interfaces string
		ask        func(*Client) error
	}{
		"a number": {info, `{"name": "eth0", "hardware-address": "m", "ip-addresses": [{"ip-address": "10.1.1.2", "prefix": ` + strings.Repeat("1", 1<<16) + `}]}`,
			func(c *Client) error { _, err := c.Info(t.Context()); return err }},
		"no info":        {status{Exited: true, Out: long}, "", func(c *Client) error { _, err := c.Info(t.Context()); return err }},
		"no socket":      {status{Exited: true, Out: long + " 1"}, "", func(c *Client) error { _, err := c.Users(t.Context()); return err }},
		"a command ends": {status{Exited: true, ExitCode: 1, Err: long}, "", func(c *Client) error { return c.Run(t.Context(), "setup false") }},
		"a script ends":  {status{Exited: true, ExitCode: 1, Err: long}, "", func(c *Client) error { return c.DropAddress(t.Context()) }},
		"no endpoint": {status{Exited: true, Out: "eth0 " + long}, "", func(c *Client) error {
			_, err := c.Configure(t.Context(), guest.Configure{MAC: "52:54:00:00:00:0a", Table: 1, Addrs: []netip.Prefix{netip.MustParsePrefix("10.1.1.2/24")}})
			return err
		}},
	} {
		err := c.ask(saying(t, c.came, c.interfaces))
		if text := fmt.Sprint(err); err == nil || len(text) > 4000 || strings.Contains(text, "\x1b") {
			t.Errorf("%s: %.200q, of %d bytes", name, text, len(text))
		}
	}
}

// TestLateAnswerIsNobodys: who gave up waiting leaves an answer behind, which the next
// call must not take for its own.
func TestLateAnswerIsNobodys(t *testing.T) {
	calls, gaveUp := 0, make(chan struct{})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	socket := agent(t, func(command string, id int64, out net.Conn) {
		switch {
		case command == "guest-sync-delimited":
			synced(id, out)
		case calls == 0:
			calls++
			cancel()
			<-gaveUp
			fmt.Fprintln(out, `{"return": "late"}`)
		default:
			fmt.Fprintln(out, `{"return": "mine"}`)
		}
	})
	c, err := Dial(t.Context(), socket)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	var got string
	err = c.execute(ctx, "guest-get-host-name", nil, &got)
	close(gaveUp)
	if !errors.Is(err, context.Canceled) {
		t.Fatalf("an agent that is slow: %v", err)
	}
	if err := c.execute(t.Context(), "guest-get-host-name", nil, &got); err != nil || got != "mine" {
		t.Errorf("after it: %q, %v", got, err)
	}
}

// TestSilentAndGone: who does not answer is given up with the context, who hangs up is
// ErrClosed.
func TestSilentAndGone(t *testing.T) {
	silent := agent(t, func(string, int64, net.Conn) {})
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if c, err := Dial(ctx, silent); err == nil || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a silent agent: %v, %v", c, err)
	}
	gone := agent(t, func(command string, id int64, out net.Conn) {
		if command != "guest-sync-delimited" {
			out.Close()
			return
		}
		synced(id, out)
	})
	c, err := Dial(t.Context(), gone)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := c.execute(t.Context(), "guest-ping", nil, nil); !errors.Is(err, guest.ErrClosed) {
		t.Errorf("an agent that is gone: %v", err)
	}
	select {
	case <-c.Done():
	default:
		t.Error("not done")
	}
}
