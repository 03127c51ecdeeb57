package agent

import (
	"bytes"
	"encoding/hex"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"godwit/agent/config"
	"godwit/agent/lanes"
	"godwit/agent/record"
	"godwit/agent/talk"
	"godwit/internal/socket"
	"godwit/migration"
	"godwit/transfer/inlet"
	"godwit/transfer/proxy"
	"godwit/transfer/qstream"
	"godwit/transfer/wire"
)

// feeding is an inlet in dir that feeds a guest which misses so many pages.
func feeding(t *testing.T, dir string, missing uint64) {
	t.Helper()
	listener, err := socket.Listen(inletSocket(dir))
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- inlet.Serve(listener) }()
	qemu, err := net.Listen("unix", filepath.Join(dir, "qemu"))
	if err != nil {
		t.Fatal(err)
	}
	defer qemu.Close()
	ours, err := net.Dial("unix", qemu.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	theirs, err := qemu.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		theirs.Close()
		<-ended
	})
	head, err := hex.DecodeString("5145564d" + "00000003" + "07" + "00000002" + "7063" + "08" + "0001" + "0000")
	if err != nil {
		t.Fatal(err)
	}
	blocks, err := qstream.Layout([]qstream.Block{{Name: "ram", Length: int64(missing) * qstream.PageSize}}) //nolint:gosec // few
	if err != nil {
		t.Fatal(err)
	}
	var prologue bytes.Buffer
	pro := &qstream.Prologue{Head: head, Machine: "pc", Section: 2, Blocks: blocks, Commands: []qstream.Command{{Code: qstream.OpenReturnPath, At: len(head) - 5}}}
	if err := qstream.NewWriter(&prologue, pro).Begin(); err != nil {
		t.Fatal(err)
	}
	client, err := inlet.Dial(t.Context(), inletSocket(dir))
	if err != nil {
		t.Fatal(err)
	}
	if err := client.Begin(ours.(*net.UnixConn), prologue.Bytes(), []wire.Run{{Count: missing}}, nil); err != nil {
		t.Fatal(err)
	}
	ours.Close()
	client.Close()
}

// TestRefillAskedTwice: a source that did not hear the answer asks once more, and that is the same: lanes that it may
// have opened by now live on, and it counts once. Another key is another refill, and what comes late by one of before
// ends none.
func TestRefillAskedTwice(t *testing.T) {
	dir, err := os.MkdirTemp("", "gw") // short enough for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	feeding(t, dir, 7)
	a := bareAgent(t, &config.Config{Host: "rome"})
	a.ctx = t.Context()
	plan := migration.Plan{ID: "m-00000001", Guest: "web", From: "paris", To: "rome", Mode: "postcopy", Transfer: "lanes", Epoch: 2}
	m := &incoming{a: a, plan: plan, dir: dir, rec: record.New("rome", plan, time.Now()), work: &destinationWork{}}
	first, second := lanes.NewKey(), lanes.NewKey()
	refill := func(key []byte) *proxy.Destination {
		t.Helper()
		answer, err := m.refill(talk.Refill{Epoch: 2, Key: key})
		if err != nil || answer != (talk.RefillAnswer{State: talk.RefillOpen, Missing: 7}) {
			t.Fatalf("%+v, %v", answer, err)
		}
		return m.lanes()
	}
	one := refill(first)
	defer func() { m.lanes().Close() }()
	if refill(first) != one {
		t.Error("the lanes were replaced")
	}
	two := refill(second)
	if two == one || one.Err() == nil {
		t.Error("another refill goes on with the lanes of the one before")
	}
	if _, err := m.refill(talk.Refill{Epoch: 2, Key: first}); err == nil || m.lanes() != two {
		t.Errorf("one that is over has ended that which came after it: %v", err)
	}
	if n := m.rec.Snapshot().PostCopy.Refills; n != 2 {
		t.Errorf("%d refills", n)
	}
	two.Close()
	if refill(second) == two {
		t.Error("lanes that have ended are to bring pages")
	}
}
