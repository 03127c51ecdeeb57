package qmp

import (
	"bufio"
	"fmt"
	"net"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TestGive: a descriptor comes with its command, and the giver's stays open.
func TestGive(t *testing.T) {
	ours, theirs := sockets(t)
	defer theirs.Close()
	said := make(chan string, 1)
	go func() {
		fmt.Fprintln(theirs, `{"QMP": {"version": {"qemu": {"major": 10, "minor": 0, "micro": 2}}, "capabilities": []}}`)
		line, err := bufio.NewReader(theirs).ReadString('\n')
		if err != nil {
			return
		}
		fmt.Fprintf(theirs, "{\"return\": {}, \"id\": %s}\n", idOf(line))
		data, rights := make([]byte, 4096), make([]byte, 256)
		n, r, _, _, err := theirs.ReadMsgUnix(data, rights)
		if err != nil {
			return
		}
		said <- fmt.Sprintf("%s, with %s", strings.TrimSpace(string(data[:n])), content(rights[:r]))
		fmt.Fprintf(theirs, "{\"return\": {}, \"id\": %s}\n", idOf(string(data[:n])))
	}()
	c, err := New(t.Context(), ours)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	file, err := os.CreateTemp(t.TempDir(), "")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if _, err := file.WriteString("what is given"); err != nil {
		t.Fatal(err)
	}
	if err := c.Give(t.Context(), "out", file); err != nil {
		t.Fatal(err)
	}
	if got := <-said; !strings.Contains(got, `"execute":"getfd","arguments":{"fdname":"out"}`) || !strings.HasSuffix(got, "with what is given") {
		t.Error(got)
	}
	if _, err := file.Stat(); err != nil {
		t.Errorf("the giver's: %v", err)
	}
}

// TestGiveByAPipe: what is no unix socket carries none, and says so.
func TestGiveByAPipe(t *testing.T) {
	ours, theirs := net.Pipe()
	defer theirs.Close()
	c := &Client{conn: ours, waiting: map[uint64]chan reply{}}
	if err := c.Give(t.Context(), "out", os.Stdin); err == nil || !strings.Contains(err.Error(), "by a unix socket alone") {
		t.Errorf("%v", err)
	}
}

func sockets(t *testing.T) (here, there *net.UnixConn) {
	t.Helper()
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	var conns [2]*net.UnixConn
	for i, fd := range pair {
		file := os.NewFile(uintptr(fd), "pair")
		conn, err := net.FileConn(file)
		file.Close()
		if err != nil {
			t.Fatal(err)
		}
		conns[i] = conn.(*net.UnixConn)
	}
	return conns[0], conns[1]
}

// idOf is that of a command.
func idOf(line string) string {
	_, id, _ := strings.Cut(line, `"id":`)
	return strings.TrimRight(id, "}\n")
}

// content is what is in the file whose descriptor came so.
func content(rights []byte) string {
	messages, err := unix.ParseSocketControlMessage(rights)
	if err != nil || len(messages) != 1 {
		return fmt.Sprintf("%d messages, %v", len(messages), err)
	}
	fds, err := unix.ParseUnixRights(&messages[0])
	if err != nil || len(fds) != 1 {
		return fmt.Sprintf("%v, %v", fds, err)
	}
	file := os.NewFile(uintptr(fds[0]), "given")
	defer file.Close()
	data := make([]byte, 100)
	n, err := file.ReadAt(data, 0)
	if n == 0 {
		return err.Error()
	}
	return string(data[:n])
}
