package archive

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"godwit/internal/need"
)

var sample = []Entry{
	{Path: "init", Mode: 0o755, Content: []byte("#!/bin/sh\n")},
	{Path: "bin/sh", Target: "busybox"},
	{Path: "bin/busybox", Mode: 0o755, Content: bytes.Repeat([]byte{7}, 4097)},
	{Path: "dev/console", Mode: 0o600, Device: &Device{5, 1}},
	{Path: "proc", Mode: 0o555, Folder: true},
}

func TestSameContentSameBytes(t *testing.T) {
	var forward, backward bytes.Buffer
	if err := Write(&forward, sample); err != nil {
		t.Fatal(err)
	}
	reversed := slices.Clone(sample)
	slices.Reverse(reversed)
	if err := Write(&backward, reversed); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(forward.Bytes(), backward.Bytes()) {
		t.Error("the order of the entries changes the archive")
	}
}

func TestBusyboxReadsIt(t *testing.T) {
	need.Root(t) // a device node is among the entries
	need.Program(t, "busybox")
	var archive bytes.Buffer
	if err := Write(&archive, sample); err != nil {
		t.Fatal(err)
	}
	command := exec.Command("busybox", "cpio", "-i", "-d")
	command.Dir, command.Stdin = t.TempDir(), &archive
	if out, err := command.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	got, err := os.ReadFile(filepath.Join(command.Dir, "bin/busybox"))
	if err != nil || len(got) != 4097 {
		t.Errorf("bin/busybox: %d bytes, %v", len(got), err)
	}
	if target, err := os.Readlink(filepath.Join(command.Dir, "bin/sh")); err != nil || target != "busybox" {
		t.Errorf("bin/sh: %q, %v", target, err)
	}
	if info, err := os.Lstat(filepath.Join(command.Dir, "dev/console")); err != nil || info.Mode()&os.ModeCharDevice == 0 {
		t.Errorf("dev/console: %v, %v", info, err)
	}
}

func TestWrongEntriesAreRefused(t *testing.T) {
	for name, entries := range map[string][]Entry{
		"absolute": {{Path: "/init"}},
		"outside":  {{Path: "../init"}},
		"twice":    {{Path: "init"}, {Path: "init"}},
		"in file":  {{Path: "init"}, {Path: "init/x"}},
	} {
		if err := Write(&bytes.Buffer{}, entries); err == nil {
			t.Errorf("%s: taken", name)
		}
	}
}
