package main

import (
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

func TestTerminal(t *testing.T) {
	t.Setenv("TERM", "xterm")
	open := func(name string) *os.File {
		t.Helper()
		f, err := os.OpenFile(name, os.O_RDWR, 0)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { f.Close() }) //nolint:errcheck // nothing was written
		return f
	}
	null, tty := open(os.DevNull), open("/dev/ptmx")
	if isTerminal(null) {
		t.Error("a device of characters alone counts as a terminal")
	}
	if !isTerminal(tty) {
		t.Error("a terminal does not count as one")
	}
	if err := unix.IoctlSetWinsize(int(tty.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 12, Col: 80}); err != nil {
		t.Fatal(err)
	}
	if rows := rowsOf(tty); rows != 12 || rowsOf(null) != 0 {
		t.Errorf("a terminal of 12 rows has %d, and what is none %d", rows, rowsOf(null))
	}
	t.Setenv("NO_COLOR", "")
	if inColour(null) || !inColour(tty) {
		t.Error("colours but on a terminal, or none there")
	}
	t.Setenv("NO_COLOR", "1")
	if inColour(tty) {
		t.Error("colours for who wants none")
	}
	t.Setenv("TERM", "dumb")
	if isTerminal(tty) {
		t.Error("one that cannot be drawn on counts as a terminal")
	}
}
