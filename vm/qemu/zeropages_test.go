package qemu_test

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"godwit/vm"
	"godwit/vm/qemu"
)

// TestZerosReplaceWhatAFileHeld: memory in a file that was there before is the guest's after a move by several channels.
func TestZerosReplaceWhatAFileHeld(t *testing.T) {
	const size = 32 << 20
	dir := t.TempDir()
	in := func(name string, words ...string) *qemu.Process {
		file := filepath.Join(dir, name)
		return theirs(t, append(words, "-S", "-machine", "q35,memory-backend=ram", "-accel", "tcg", "-m", "32",
			"-object", "memory-backend-file,id=ram,size=32M,share=on,mem-path="+file)...)
	}
	if err := os.WriteFile(filepath.Join(dir, "there"), bytes.Repeat([]byte{0xaa}, size), 0o600); err != nil {
		t.Fatal(err)
	}
	source, there := in("here"), in("there", "-incoming", "defer")
	opts := vm.MigrateOptions{URI: "unix:" + filepath.Join(dir, "in.sock"), Multifd: true}
	if err := there.PrepareIncoming(t.Context(), opts); err != nil {
		t.Fatal(err)
	}
	if err := source.Migrate(t.Context(), opts); err != nil {
		t.Fatal(err)
	}
	for _, p := range []*qemu.Process{source, there} {
		if _, err := p.AwaitMigration(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	want, err1 := os.ReadFile(filepath.Join(dir, "here"))
	got, err2 := os.ReadFile(filepath.Join(dir, "there"))
	if err1 != nil || err2 != nil || !bytes.Equal(got, want) {
		t.Errorf("memory differs (%v, %v), where %d bytes are as they were in the file", err1, err2, bytes.Count(got, []byte{0xaa}))
	}
}
