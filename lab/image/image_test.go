package image

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// tree makes a folder like build/, with the files that are named in it.
func tree(t *testing.T, files ...string) string {
	t.Helper()
	root := t.TempDir()
	for _, f := range files {
		path := filepath.Join(root, f)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte("x"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv(Variable, filepath.Join(root, "build", "guest"))
	return root
}

func TestNamed(t *testing.T) {
	root := tree(t, "build/guest/vmlinuz", "build/guest/initrd.img",
		"build/debian12/vmlinuz", "build/debian12/initrd.img", "build/debian12/root.squashfs",
		"build/debian13/vmlinuz", "build/debian13/initrd.img")
	tiny, err := Named(Tiny)
	if err != nil || tiny.Root != "" || tiny.Kernel != filepath.Join(root, "build/guest/vmlinuz") || tiny.Cmdline != Cmdline {
		t.Errorf("tiny: %+v, %v", tiny, err)
	}
	debian, err := Named("debian12")
	if err != nil || debian.Root != filepath.Join(root, "build/debian12/root.squashfs") ||
		debian.Initrd != filepath.Join(root, "build/debian12/initrd.img") || !strings.HasSuffix(debian.Cmdline, " switch-root") {
		t.Errorf("debian12: %+v, %v", debian, err)
	}
	for _, name := range []string{"debian13", "debian14"} { // half there, not there
		if found, err := Named(name); err == nil || !strings.Contains(err.Error(), "scripts/image "+name) {
			t.Errorf("%s: %+v, %v; want an error that says how to make it", name, found, err)
		}
	}
	tree(t)
	if _, err := Named(Tiny); !errors.Is(err, ErrMissing) {
		t.Errorf("no image at all: %v", err)
	}
}

// TestEnsure has a script of its own in the place of scripts/image.
func TestEnsure(t *testing.T) {
	root := tree(t, "build/guest/vmlinuz", "build/guest/initrd.img", "go.mod")
	script := func(body string) {
		t.Helper()
		path := filepath.Join(root, "scripts", "image")
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte("#!/bin/sh\ncd \""+root+"\"\n"+body), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	var told []string
	tell := func(line string) { told = append(told, line) }
	script("echo image: $1: fetching; mkdir -p build/$1; for f in vmlinuz initrd.img root.squashfs; do echo x >build/$1/$f; done\n")
	found, err := Ensure(t.Context(), "debian12", tell)
	if err != nil || found.Root == "" || !slices.Equal(told, []string{"image: debian12: fetching"}) {
		t.Errorf("%+v, %v, told %q", found, err, told)
	}
	script("echo image: $1: the mirror does not answer >&2; exit 1\n")
	if _, err := Ensure(t.Context(), "debian13", tell); err == nil || err.Error() != "build guest image debian13: the mirror does not answer" {
		t.Errorf("a mirror that does not answer: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	script("sleep 60 & echo begun; wait\n")
	if _, err := Ensure(ctx, "debian13", func(string) { cancel() }); err == nil {
		t.Error("an interrupted build is no error")
	}
}
