package qemu

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// asides are what QEMU 10 says of a console at a pty, of options as people wrote them for long, and of a disk without
// its format.
const asides = "char device redirected to /dev/pts/1 (label charserial0)\n" +
	Program + ": -chardev socket,id=c,path=/c,server,nowait: warning: short-form boolean option 'server' deprecated\nPlease use server=on instead\n" +
	"WARNING: Image format was not specified for 'a' and probing guessed raw.\n         Specify the 'raw' format explicitly to remove the restrictions.\n"

// TestComplaint: of what QEMU writes as it cannot load a guest, the line that says why.
func TestComplaint(t *testing.T) {
	const qemu, failed = Program + ": ", Program + ": load of migration failed: Invalid argument\n"
	for name, c := range map[string]struct{ log, want string }{
		"nothing":          {"", ""},
		"nothing telling":  {qemu + "warning: TCG doesn't support it\n" + failed, ""},
		"only asides":      {asides + failed, ""},
		"a missing device": {qemu + "warning: old\n" + qemu + "Unknown savevm section or instance 'serial' 0. Make sure\n" + failed, "Unknown savevm section or instance 'serial' 0. Make sure"},
		"with a time":      {"2026-01-02T03:04:05.678901Z " + qemu + "Unknown savevm section\n" + failed, "Unknown savevm section"},
		"another size":     {qemu + "Size mismatch: pc.ram\n" + qemu + "error while loading state for instance 0x0 of device 'ram'\n" + failed, "Size mismatch: pc.ram; error while loading state for instance 0x0 of device 'ram'"},
		"the state alone":  {qemu + "error while loading state section id 3\n" + failed, "error while loading state section id 3"},
		"for a terminal":   {"\x1b[2Jgone\a\xff\n", "[2Jgone"},
		"a long line":      {strings.Repeat("é", 2000), strings.Repeat("é", complaintMost/2) + " …"},
		"a long log":       {qemu + "old\n" + strings.Repeat("warning: 1234567\n", 1000)[1:], ""},
	} {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "qemu.log"), []byte(c.log), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := Complaint(dir); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
	if got := Complaint(t.TempDir()); got != "" {
		t.Errorf("no log: %q", got)
	}
}

// TestLinesOfALogCanBeShown: what a description's own command wrote, its first complaint or its last words, moves no
// terminal and is not long.
func TestLinesOfALogCanBeShown(t *testing.T) {
	log := filepath.Join(t.TempDir(), "qemu.log")
	for said, want := range map[string]string{
		"\x1b[2Jgone\a\xff": "[2Jgone", strings.Repeat("é", 1000): strings.Repeat("é", complaintMost/2) + " …",
		"2026-01-02T03:04:05.678901Z " + Program + ": no \x9b31msuch\tNIC": "no 31msuchNIC",
	} {
		if err := os.WriteFile(log, []byte(said+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		if first, last := firstComplaint(log), lastLine(log); first != want || last != want {
			t.Errorf("%q: %q and %q, want %q", said, first, last, want)
		}
	}
}
