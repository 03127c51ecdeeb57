package leftover

import (
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"godwit/agent/care"
	"godwit/agent/config"
	"godwit/agent/statefile"
)

// TestAdoptedWhereItRuns: the directory of a QEMU that was found without care, and adopted by its socket there, belongs
// to its guest.
func TestAdoptedWhereItRuns(t *testing.T) {
	root := t.TempDir()
	c := &config.Config{Host: "here", State: filepath.Join(root, "state"), Run: filepath.Join(root, "run")}
	dir := filepath.Join(c.Run, "guests", "web-3")
	if err := errors.Join(os.MkdirAll(dir, 0o700), os.MkdirAll(filepath.Join(c.State, "guests"), 0o700)); err != nil {
		t.Fatal(err)
	}
	ln, err := net.Listen("unix", filepath.Join(dir, "qmp.sock"))
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	found := func() Thing {
		t.Helper()
		o, err := readOwners(c)
		if err != nil {
			t.Fatal(err)
		}
		things, err := directories(t.Context(), c, o)
		if err != nil || len(things) != 1 {
			t.Fatalf("%v, %v", things, err)
		}
		return things[0]
	}
	without := func(want int) {
		t.Helper()
		if things, err := WithoutCare(t.Context(), c); err != nil || len(things) != want {
			t.Errorf("without care: %v, %v; want %d", things, err, want)
		}
	}
	if thing := found(); thing.Stays == "" {
		t.Errorf("before: %s, want that it stays", thing)
	}
	without(1)
	unread := filepath.Join(c.State, "guests", "web.json")
	if err := os.WriteFile(unread, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if thing := found(); thing.Stays != sealedWords { // it may be a guest's that is well
		t.Errorf("with a guest's file that cannot be read: %s", thing)
	}
	without(0)
	if err := os.Remove(unread); err != nil {
		t.Fatal(err)
	}
	h := care.Held{Description: config.Description{Name: "mail", Memory: 256 << 20, NICs: []config.NIC{{MAC: "52:54:00:00:01:0a"}}, QMP: ln.Addr().String()},
		Epoch: 1, Dir: filepath.Join(c.Run, "guests", "mail-1")}
	if err := statefile.Write(filepath.Join(c.State, "guests", "mail.json"), h); err != nil {
		t.Fatal(err)
	}
	if thing := found(); thing.Owner != "guest mail" || thing.Stays != "" {
		t.Errorf("adopted: %s, want it to be of guest mail", thing)
	}
	without(0)
}

// TestAdoptedByAnotherName: so it is where the directory of the socket is named otherwise than by the agent's
// configuration, as /var/run leads to /run.
func TestAdoptedByAnotherName(t *testing.T) {
	for _, byLink := range []bool{false, true} {
		root := t.TempDir()
		at, link := filepath.Join(root, "run"), filepath.Join(root, "link")
		c := &config.Config{Host: "here", State: filepath.Join(root, "state"), Run: link}
		if byLink {
			c.Run = at
		}
		dir := filepath.Join(at, "guests", "web-3")
		if err := errors.Join(os.MkdirAll(dir, 0o700), os.Symlink(at, link), os.MkdirAll(filepath.Join(c.State, "guests"), 0o700)); err != nil {
			t.Fatal(err)
		}
		ln, err := net.Listen("unix", filepath.Join(dir, "qmp.sock"))
		if err != nil {
			t.Fatal(err)
		}
		defer ln.Close()
		qmp := filepath.Join(dir, "qmp.sock")
		if byLink {
			qmp = filepath.Join(link, "guests", "web-3", "qmp.sock")
		}
		h := care.Held{Description: config.Description{Name: "mail", Memory: 256 << 20, NICs: []config.NIC{{MAC: "52:54:00:00:01:0a"}}, QMP: qmp}, Epoch: 1, Dir: filepath.Join(c.Run, "guests", "mail-1")}
		if err := statefile.Write(filepath.Join(c.State, "guests", "mail.json"), h); err != nil {
			t.Fatal(err)
		}
		if things, err := WithoutCare(t.Context(), c); err != nil || len(things) > 0 {
			t.Errorf("adopted by a link, %v: %v, %v", byLink, things, err)
		}
	}
}

// TestStateIsRun: where a configuration names one directory for STATE and RUN, the files of guests under care are no
// guest's runtime directory.
func TestStateIsRun(t *testing.T) {
	dir := t.TempDir()
	c := &config.Config{Host: "here", State: dir, Run: dir}
	at := filepath.Join(dir, "guests", "web-1")
	h := care.Held{Description: config.Description{Name: "web", Memory: 256 << 20, NICs: []config.NIC{{MAC: "52:54:00:00:01:0a"}}, QMP: filepath.Join(at, "qmp.sock")},
		Epoch: 1, Dir: at}
	if err := errors.Join(os.MkdirAll(at, 0o700), statefile.Write(filepath.Join(dir, "guests", "web.json"), h)); err != nil {
		t.Fatal(err)
	}
	o, err := readOwners(c)
	if err != nil {
		t.Fatal(err)
	}
	things, err := directories(t.Context(), c, o)
	if err != nil || len(things) != 1 || things[0].Owner != "guest web" {
		t.Errorf("%v, %v; want %s alone, of guest web", things, err, at)
	}
}

// TestInletOfAGuestUnread: what brings pages to a QEMU whose guest's file cannot be read does not tell to end that,
// which may be well.
func TestInletOfAGuestUnread(t *testing.T) {
	h := newHost(t)
	dir := filepath.Dir(h.inlet("web-3"))
	qemu := exec.Command("/bin/sh")
	qemu.Args = []string{"qemu-system-x86_64", "-c", "echo; read x", "-pidfile", filepath.Join(dir, "pid")}
	in, err := qemu.StdinPipe()
	h.must(err)
	out, err := qemu.StdoutPipe()
	h.must(err)
	h.must(qemu.Start())
	defer qemu.Wait() //nolint:errcheck // it reads nothing
	defer in.Close()
	out.Read(make([]byte, 1)) //nolint:errcheck // it has begun
	for _, unread := range []bool{false, true} {
		if unread {
			h.must(os.WriteFile(filepath.Join(h.config.State, "guests", "web.json"), []byte("{"), 0o600))
		}
		things := slices.DeleteFunc(h.find(), func(t Thing) bool { return t.Kind != Inlet })
		if len(things) != 1 || (things[0].Stays == sealedWords) != unread || things[0].Left() {
			t.Errorf("with a guest's file that cannot be read, %v: %v", unread, things)
		}
	}
}
