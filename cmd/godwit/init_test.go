package main

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestInitSaysWhatAndWhere: what was made is counted; where nothing could be made, the line says of what, and what to do.
func TestInitSaysWhatAndWhere(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for hosts, want := range map[string]string{"a": "1 certificate in ", "b c": "2 certificates in "} {
		var out bytes.Buffer
		if status := run(strings.Fields("init "+hosts+" --out "+filepath.Join(dir, strings.Fields(hosts)[0])), &out, io.Discard); status != exitDone || !strings.HasPrefix(out.String(), want) || !strings.HasSuffix(out.String(), "each host gets its ca.pem, HOST.pem and HOST.key\n") {
			t.Errorf("init %s: status %d, %q", hosts, status, out.String())
		}
	}
	var errOut bytes.Buffer
	status := run([]string{"init", "a", "--out", filepath.Join(file, "x")}, io.Discard, &errOut)
	if said := errOut.String(); status != exitFailed || !strings.HasPrefix(said, "godwit: init: make certificates in "+file) || !strings.Contains(said, "--out") {
		t.Errorf("status %d, %q", status, said)
	}
}

// TestInitByAClockOf1970: certificates that had ended long ago for every other host are not made.
func TestInitByAClockOf1970(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "fleet")
	_, err := makeFleet(dir, []string{"a"}, time.Unix(60, 0), false)
	if want := "this host's clock shows 1970-01-01 00:01:00 UTC, and what is made is good until a year after that; set the clock right first"; err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
	if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("something was made: %v", err)
	}
}

// TestInitLeavesNoHalfFleet: where a file cannot be written there is no CA, which would bar the next try.
func TestInitLeavesNoHalfFleet(t *testing.T) {
	dir := t.TempDir()
	barred := filepath.Join(dir, "b.pem")
	if err := os.Mkdir(barred, 0o700); err != nil {
		t.Fatal(err)
	}
	args := []string{"init", "b", "a", "--out", dir}
	if status := run(args, io.Discard, io.Discard); status != exitFailed {
		t.Errorf("status %d", status)
	}
	if files, err := os.ReadDir(dir); err != nil || len(files) != 1 {
		t.Errorf("left: %v, %v", files, err)
	}
	if err := os.Remove(barred); err != nil {
		t.Fatal(err)
	}
	if status := run(args, io.Discard, os.Stderr); status != exitDone {
		t.Errorf("again: status %d", status)
	}
	if files, err := os.ReadDir(dir); err != nil || len(files) != 5 {
		t.Errorf("made: %v, %v", files, err)
	}
}

// TestInitLeavesNoFolder: where nothing could be made no folder is that was not there before.
func TestInitLeavesNoFolder(t *testing.T) {
	there := t.TempDir()
	never := time.Date(9999, 12, 1, 0, 0, 0, 0, time.UTC) // no certificate ends a year later
	for _, dir := range []string{there, filepath.Join(there, "fleet"), filepath.Join(there, "a", "b", "fleet") + "/"} {
		if _, err := makeFleet(dir, []string{"a"}, never, false); err == nil {
			t.Errorf("%s: it was made", dir)
		}
		if files, err := os.ReadDir(there); err != nil || len(files) != 0 {
			t.Errorf("%s: left: %v, %v", dir, files, err)
		}
	}
}

// TestInitSaysWhatIsWorthless: certificates of a CA that was replaced, of hosts that were not named, are told: nobody
// believes them by the new one.
func TestInitSaysWhatIsWorthless(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "x.pem"), []byte("somebody else's"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ args, worthless, json string }{
		{"a b c", "", ""},
		{"a --force", "hosts b, c: ", `"worthless":["b","c"]`},
		{"a b --force", "host c: ", `"worthless":["c"]`},
		{"a b c --force", "", ""},
	} {
		for _, asJSON := range []bool{false, true} {
			if asJSON {
				c.args, c.worthless = c.args+" --force --json", c.json
			}
			var out bytes.Buffer
			if status := run(strings.Fields("init "+c.args+" --out "+dir), &out, os.Stderr); status != exitDone {
				t.Fatalf("%s: status %d", c.args, status)
			}
			said, told := strings.ReplaceAll(strings.TrimSpace(out.String()), "\n", "|"), strings.Contains(out.String(), "worthless")
			if asJSON {
				said = strings.Join(strings.Fields(out.String()), "")
			}
			if told != (c.worthless != "") || !strings.Contains(said, c.worthless) {
				t.Errorf("%s: %q", c.args, said)
			}
		}
	}
}

// TestInitTidiesUpAfterItself: of one that was killed, which has left the hosts' keys, nothing is there after the next;
// what is others' stays.
func TestInitTidiesUpAfterItself(t *testing.T) {
	dir := t.TempDir()
	for _, left := range []string{".godwit-init-1", ".tmp-theirs"} {
		if err := os.Mkdir(filepath.Join(dir, left), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, left, "a.key"), []byte("secret"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if status := run([]string{"init", "a", "--out", dir}, io.Discard, os.Stderr); status != exitDone {
		t.Errorf("status %d", status)
	}
	files, err := os.ReadDir(dir)
	if err != nil || len(files) != 4 || files[0].Name() != ".tmp-theirs" {
		t.Errorf("there are %v, %v", files, err)
	}
}

// TestOneInitOfADirectory: while one makes a fleet's certificates no other takes away, or mixes, what it makes.
func TestOneInitOfADirectory(t *testing.T) {
	dir := t.TempDir()
	unlock, err := aloneIn(dir)
	if err != nil {
		t.Fatal(err)
	}
	var errOut bytes.Buffer
	status := run([]string{"init", "a", "--out", dir}, io.Discard, &errOut)
	if said := errOut.String(); status != exitFailed || !strings.Contains(said, "another godwit init is making certificates there") {
		t.Errorf("status %d, %q", status, said)
	}
	unlock()
	if status := run([]string{"init", "a", "--out", dir}, io.Discard, os.Stderr); status != exitDone {
		t.Errorf("then: status %d", status)
	}
	if _, err := makeFleet(dir, []string{"b"}, time.Now(), false); !errors.Is(err, errFleetThere) { // it had looked before that one was done
		t.Errorf("another after that: %v", err)
	}
}
