package guests

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"godwit/agent/agenttest"
	"godwit/agent/care"
	"godwit/agent/config"
	"godwit/agent/limits"
	"godwit/agent/line"
	"godwit/agent/statefile"
	"godwit/migration"
	"godwit/vm"
)

// qemu has no channel, and lives until done is closed.
type qemu struct {
	vm.Machine
	done chan struct{}
}

func (qemu) GuestChannel() string    { return "" }
func (q qemu) Done() <-chan struct{} { return q.done }

// held is what can be remembered of guest web.
func held(run, dir string) care.Held {
	d := config.Description{Name: "web", Memory: 256 << 20, NICs: []config.NIC{{MAC: "52:54:00:00:01:0a"}, {MAC: "52:54:00:00:01:0b"}}}
	return care.Held{Description: d, Dir: filepath.Join(run, "guests", dir), Number: 1, Taps: []string{"gwt1a", "gwt1b"}, Epoch: 3}
}

// says fails the test where an error has not that word, or is one where there should be none.
func says(t *testing.T, name string, err error, word string) {
	t.Helper()
	if (err == nil) != (word == "") || err != nil && !strings.Contains(err.Error(), word) {
		t.Errorf("%s: %v, want %q", name, err, word)
	}
}

// TestOneGuestOfAName: of two guests of one name that are started or received at the same time
// the second is refused, as it would have the same directory.
func TestOneGuestOfAName(t *testing.T) {
	s := In(t.TempDir())
	named := func(name string) *Guest {
		return New(care.Held{Description: config.Description{Name: name}}, nil)
	}
	first, second, other := named("web"), named("web"), named("db")
	if err := s.Expect(first); err != nil {
		t.Fatal(err)
	}
	agenttest.Refused(t, "while the first is started", s.Expect(second), migration.CodeBusy, "web")
	if err := s.Expect(other); err != nil || other.Held().Number == first.Held().Number {
		t.Errorf("%v, number %d", err, other.Held().Number)
	}
	if err := s.Save(first); err != nil {
		t.Fatal(err)
	}
	agenttest.Refused(t, "while the first is here", s.Expect(second), migration.CodeBusy, "web")
	if err := s.Forget(first); err != nil {
		t.Fatal(err)
	}
	if err := s.Expect(second); err != nil {
		t.Error(err)
	}
}

// TestBusyWords: who finds a guest busy is told to abort what can be aborted, and nothing else.
func TestBusyWords(t *testing.T) {
	for busy, call := range map[string]bool{"m-00000001": true, "stop": false, "taken back by paris": false} {
		g := &Guest{busy: busy}
		if err := g.Take("m-00000002"); err == nil || strings.Contains(err.Error(), "godwit abort") != call || !strings.Contains(err.Error(), busy) {
			t.Errorf("%s: %v", busy, err)
		}
	}
}

// TestForgottenOnASlowDisk: who asks for guests while one is forgotten does not wait for the disk; one of its name that
// comes meanwhile is written down after that.
func TestForgottenOnASlowDisk(t *testing.T) {
	s := In(t.TempDir())
	old, next := New(care.Held{Description: config.Description{Name: "web"}}, nil), New(care.Held{Description: config.Description{Name: "web"}, Epoch: 2}, nil)
	if err := s.Save(old); err != nil {
		t.Fatal(err)
	}
	asked, done := make(chan struct{}), make(chan struct{})
	removeGuest = func(path string) error { close(asked); <-done; return statefile.Remove(path) }
	defer func() { removeGuest = statefile.Remove }()
	forgotten, looked, saved := make(chan error, 1), make(chan error, 1), make(chan error, 1)
	go func() { forgotten <- s.Forget(old) }()
	<-asked
	go func() { looked <- s.Expect(next) }()
	select {
	case err := <-looked:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(10 * time.Second):
		t.Error("it waits for the disk")
	}
	go func() { saved <- s.Save(next) }()
	close(done)
	if err := errors.Join(<-forgotten, <-saved); err != nil {
		t.Fatal(err)
	}
	var h care.Held
	if data, err := os.ReadFile(filepath.Join(s.dir, "web.json")); err != nil || json.Unmarshal(data, &h) != nil || h.Epoch != 2 {
		t.Errorf("written down: %s, %v", data, err)
	}
}

// TestForgetLeavesAnother: with a guest goes what was written down of it, and not of another of its name.
func TestForgetLeavesAnother(t *testing.T) {
	dir := t.TempDir()
	h, file := held(dir, "web-3"), filepath.Join(dir, "web.json")
	other := New(h, nil)
	other.Remember(func(h *care.Held) { h.Dir = held(dir, "web-1").Dir })
	for name, c := range map[string]struct {
		g, here *Guest
		kept    bool
	}{
		"another is under care":    {New(h, nil), New(h, nil), true},
		"another was written down": {other, nil, true},
		"its own":                  {New(h, nil), nil, false},
	} {
		if err := statefile.Write(file, h); err != nil {
			t.Fatal(err)
		}
		s := In(dir)
		if c.here != nil {
			s.byName["web"] = c.here
		}
		if err := s.Forget(c.g); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := os.Stat(file); (err == nil) != c.kept || s.byName["web"] != c.here {
			t.Errorf("%s: %v, %v", name, err, s.All())
		}
	}
}

// TestSameMAC: a guest with a MAC of another's is neither taken, nor begun, on the other's host: the bridge would give
// each what is sent to the other. A guest's own are its own.
func TestSameMAC(t *testing.T) {
	of := func(name string, macs ...string) config.Description {
		d := config.Description{Name: name}
		for _, mac := range macs {
			d.NICs = append(d.NICs, config.NIC{MAC: mac})
		}
		return d
	}
	s := In(t.TempDir())
	if err := s.Save(New(care.Held{Description: of("web", "52:54:00:00:01:0a", "52:54:00:00:01:0b")}, nil)); err != nil {
		t.Fatal(err)
	}
	coming := New(care.Held{Description: of("db", "52:54:00:00:02:0a")}, nil)
	if err := s.Expect(coming); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		d    config.Description
		word string
	}{
		"its own":               {of("web", "52:54:00:00:01:0A", "52:54:00:00:01:0b"), ""},
		"nobody's":              {of("cache", "52:54:00:00:03:0a"), ""},
		"one that nobody named": {of("cache", ""), ""},
		"of a guest here":       {of("cache", "52:54:00:00:03:0a", "52:54:00:00:01:0A"), "guest web, which is on this host"},
		"of a guest on its way": {of("cache", "52:54:00:00:02:0a"), "guest db, which is on this host"},
	} {
		says(t, name, s.MACsFree(c.d), c.word)
		if c.d.Name != "web" {
			g := New(care.Held{Description: c.d}, nil)
			says(t, name+", expected", s.Expect(g), c.word)
			s.Settled(g)
		}
	}
}

// TestNobodyToAsk: a guest without a channel is not waited for.
func TestNobodyToAsk(t *testing.T) {
	g := New(care.Held{}, qemu{})
	if c, err := g.Reach(t.Context(), limits.AskGuest); !errors.Is(err, line.ErrNone) || c != nil || g.HasChannel() {
		t.Errorf("reached %v, %v", c, err)
	}
}

// TestSilent: a guest whose QEMU does not answer yet is known by what was remembered of it, and is under no care.
func TestSilent(t *testing.T) {
	s := In(t.TempDir())
	h := held(t.TempDir(), "web-3")
	s.NoteSilent(h)
	got, is := s.Silent("web")
	if _, err := s.Find("web"); !is || got.Dir != h.Dir || err == nil || len(s.AllSilent()) != 1 {
		t.Errorf("%+v, %v; found: %v", got, is, err)
	}
	s.Answers("web")
	if _, is := s.Silent("web"); is || len(s.AllSilent()) > 0 {
		t.Error("it answers, and is waited for")
	}
}

// TestGuestsThatCannotBeRead: nobody gets the name of a guest whose file cannot be read, nor a number that it may have.
func TestGuestsThatCannotBeRead(t *testing.T) {
	s := In(t.TempDir())
	if err := os.WriteFile(filepath.Join(s.dir, "web.json"), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if all, errs := s.Remembered(); len(all) > 0 || len(errs) != 1 {
		t.Errorf("%v, %v", all, errs)
	}
	agenttest.Refused(t, "that one", s.Readable("web"), migration.CodeInternal, "left as it is", "web.json")
	db := New(care.Held{Description: config.Description{Name: "db"}}, nil)
	if err := errors.Join(s.Readable("db"), s.Expect(db)); err != nil || db.Held().Number < unknownNumbers {
		t.Errorf("%v; number %d, and with it taps that may be a guest's", err, db.Held().Number)
	}
}

// TestTaps: the descriptors of a guest's taps go with its NICs, and are closed once.
func TestTaps(t *testing.T) {
	g := New(care.Held{Active: 1}, nil)
	if g.ActiveTap() != nil {
		t.Error("it has a tap")
	}
	for _, name := range []string{"gwt1a", "gwt1b"} {
		f, err := os.Open(os.DevNull)
		if err != nil {
			t.Fatal(err)
		}
		g.AddTap(name, f)
	}
	before, taps := g.Held(), g.Taps()
	if g.AddTap("gwt1c", nil); len(before.Taps) != 2 || len(taps) != 2 || g.ActiveTap() != taps[1] {
		t.Errorf("%v, %v; active %v", before.Taps, taps, g.ActiveTap())
	}
	g.CloseFiles()
	if len(g.Taps()) > 0 || g.ActiveTap() != nil || taps[0].Close() == nil {
		t.Error("they are open")
	}
}

// TestAlive: a guest lives as long as its QEMU does, which it is given once that is there.
func TestAlive(t *testing.T) {
	g, done := New(care.Held{}, nil), make(chan struct{})
	if g.Alive() {
		t.Error("it has no QEMU")
	}
	if g.RunsIn(qemu{done: done}); !g.Alive() {
		t.Error("its QEMU lives")
	}
	if close(done); g.Alive() {
		t.Error("its QEMU is gone")
	}
}
