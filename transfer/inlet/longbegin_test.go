package inlet

import (
	"bufio"
	"bytes"
	"io"
	"net"
	"path/filepath"
	"testing"
	"time"

	"godwit/internal/socket"
	"godwit/transfer/qstream"
	"godwit/transfer/wire"
)

// pair is two ends of one unix connection.
func pair(t *testing.T) (here, there *net.UnixConn) {
	t.Helper()
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(t.TempDir(), "p"), Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if here, err = net.DialUnix("unix", nil, l.Addr().(*net.UnixAddr)); err != nil {
		t.Fatal(err)
	}
	if there, err = l.AcceptUnix(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		here.Close()
		there.Close()
	})
	return here, there
}

// scattered are so many pages, each by itself.
func scattered(pages uint64) (runs []wire.Run) {
	for n := range pages {
		runs = append(runs, wire.Run{First: 2 * n, Count: 1})
	}
	return runs
}

// TestLongBegin: while QEMU is told what is missing, of which it may take long, the inlet says that it goes on, and its
// client waits as long as it does.
func TestLongBegin(t *testing.T) {
	usual := stillTelling
	defer func() { stillTelling = usual }()
	stillTelling = 0
	const pages = 200_000 // what is told of them is more than a socket holds
	path := filepath.Join(t.TempDir(), "s")
	listener, err := socket.Listen(path)
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- Serve(listener) }()
	blocks, err := qstream.Layout([]qstream.Block{{Name: "ram", Length: 2 * pages * 4096}})
	if err != nil {
		t.Fatal(err)
	}
	var head bytes.Buffer
	pro := &qstream.Prologue{Head: []byte("QEVM\x00\x00\x00\x03\x07\x00\x00\x00\x02pc\x08\x00\x01\x00\x00"), Machine: "pc", Section: 2, Blocks: blocks}
	pro.Commands = []qstream.Command{{Code: qstream.OpenReturnPath, At: len(pro.Head) - 5}}
	if err := qstream.NewWriter(&head, pro).Begin(); err != nil {
		t.Fatal(err)
	}
	ours, qemu := pair(t)
	c, err := Dial(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	heard := make(chan struct{})
	c.r = bufio.NewReader(&hears{r: c.conn, first: func() { close(heard) }})
	go func() { // QEMU reads on when the client has heard that it is still told
		<-heard
		io.Copy(io.Discard, qemu) //nolint:errcheck // ends with the test
	}()
	if err := c.Begin(ours, head.Bytes(), scattered(pages), []byte("devices")); err != nil {
		t.Error(err)
	}
	ours.Close()
	qemu.Close()
	c.Close()
	<-ended
}

// hears calls first with the first that it reads.
type hears struct {
	r     io.Reader
	first func()
}

func (h *hears) Read(p []byte) (int, error) {
	n, err := h.r.Read(p)
	if h.first != nil {
		h.first()
		h.first = nil
	}
	return n, err
}

// TestStandsStillAtBegin: an inlet that does not go on is not waited for.
func TestStandsStillAtBegin(t *testing.T) {
	usual := greeting
	defer func() { greeting = usual }()
	greeting = 10 * time.Millisecond
	here, there := pair(t)
	ours, _ := pair(t)
	there.Write([]byte{byte(kindState), 0, 0, 0, 1, 0}) //nolint:errcheck // seen by who reads
	c := &Client{conn: here, r: bufio.NewReader(here), w: bufio.NewWriter(here), buf: make([]byte, 100)}
	if err := c.Begin(ours, nil, scattered(1), nil); err == nil || c.Begun {
		t.Error("it has begun")
	}
}
