package qemu

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"godwit/vm/qemu/qmp"
)

// TestInstalledVersionOfNow: a QEMU that is upgraded, or put in the place of another, while we run is the one that is
// asked; one that stays is asked once.
func TestInstalledVersionOfNow(t *testing.T) {
	first, second := t.TempDir(), t.TempDir()
	asked := filepath.Join(t.TempDir(), "asked")
	install := func(dir, number string) {
		t.Helper()
		path := filepath.Join(dir, Program)
		text := fmt.Sprintf("#!/bin/sh\necho >>%s\necho QEMU emulator version %s\n", asked, number)
		if err := os.WriteFile(path+".new", []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(path+".new", path); err != nil { // as packages do
			t.Fatal(err)
		}
	}
	for i, step := range []struct {
		dir, number string
		then        qmp.Version
	}{
		{second, "10.0.2", qmp.Version{Major: 10, Minor: 0, Micro: 2}},
		{second, "11.1.0", qmp.Version{Major: 11, Minor: 1}},
		{first, "10.0.7", qmp.Version{Major: 10, Minor: 0, Micro: 7}},
	} {
		install(step.dir, step.number)
		t.Setenv("PATH", first+":"+second+":/bin:/usr/bin")
		for range 2 {
			if v, err := installedVersion(t.Context()); err != nil || v != step.then {
				t.Fatalf("step %d: %s, %v; want %s", i, v, err, step.then)
			}
		}
		if said, err := os.ReadFile(asked); err != nil || len(said) != i+1 {
			t.Errorf("step %d: asked %d times, %v", i, len(said), err)
		}
	}
}

// TestOpensIsNotEnough: a device that can be opened, and makes no virtual machine, is no KVM.
func TestOpensIsNotEnough(t *testing.T) {
	file := filepath.Join(t.TempDir(), "kvm")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, device := range []string{file, "/dev/null", file + "-none"} {
		if makesMachines(device) {
			t.Errorf("guests are said to run in %s", device)
		}
	}
}
