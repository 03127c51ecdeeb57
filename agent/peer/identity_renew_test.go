package peer

import (
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"
)

// issued makes a CA with certificates for paris and rome in a directory of its own.
func issued(t *testing.T, now time.Time) string {
	t.Helper()
	dir := t.TempDir()
	ca, err := NewFleetCA(dir, now)
	if err != nil {
		t.Fatal(err)
	}
	for _, host := range []string{"paris", "rome"} {
		if err := ca.Issue(host, now); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// put copies files over those of the same names in dir, one after the other.
func put(t *testing.T, dir string, files ...string) {
	t.Helper()
	for _, path := range files {
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, filepath.Base(path)), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

func of(dir string, names ...string) []string {
	for i := range names {
		names[i] = filepath.Join(dir, names[i])
	}
	return names
}

// A fleet's certificates are renewed while its agents run, by way of a CA file that holds both; no
// call is refused at any step.
func TestRenewedWhileRunning(t *testing.T) {
	before, after := issued(t, time.Now()), issued(t, time.Now().Add(30*time.Minute))
	ids, dirs, told := map[string]*Identity{}, map[string]string{}, map[string]*[]error{}
	for _, host := range []string{"paris", "rome"} {
		dirs[host] = t.TempDir()
		put(t, dirs[host], of(before, "ca.pem", host+".pem", host+".key")...)
		id, err := LoadIdentity(filepath.Join(dirs[host], "ca.pem"), filepath.Join(dirs[host], host+".pem"), filepath.Join(dirs[host], host+".key"))
		if err != nil {
			t.Fatal(err)
		}
		heard := new([]error)
		told[host] = heard
		id.OnRenewed(func(err error) { *heard = append(*heard, err) })
		ids[host] = id
	}
	ends := ids["paris"].Expires()
	port := freePort(t)
	serve(t, ids["rome"], port, echo(), func(s *Stream) { io.Copy(s, s) })
	call := func(when string) {
		t.Helper()
		link := NewLink(ids["paris"], "rome", port, []Path{{Name: "lo-lo", Local: loopback, Remote: loopback}}) // connects anew
		defer link.Close()
		if err := link.Call(within(t, 10*time.Second), http.MethodPost, "/echo", greeting{Text: when}, nil); err != nil {
			t.Fatalf("%s: %v", when, err)
		}
		conn, err := link.Open(within(t, 5*time.Second), link.Paths()[0], Header{Migration: "m-00000001", Kind: "memory"}, 50<<20)
		if err != nil {
			t.Fatalf("%s: a stream: %v", when, err)
		}
		conn.Close()
	}
	call("before")

	both := filepath.Join(t.TempDir(), "ca.pem")
	for _, dir := range []string{before, after} {
		data, err := os.ReadFile(filepath.Join(dir, "ca.pem"))
		if err != nil {
			t.Fatal(err)
		}
		f, err := os.OpenFile(both, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		f.Write(data)
		f.Close()
	}
	for _, host := range []string{"rome", "paris"} {
		put(t, dirs[host], both)
		call("both CAs on " + host)
	}
	for _, host := range []string{"rome", "paris"} {
		for _, file := range of(after, host+".pem", host+".key") {
			put(t, dirs[host], file)
			call(filepath.Base(file))
		}
	}
	for _, host := range []string{"rome", "paris"} {
		put(t, dirs[host], of(after, "ca.pem")...)
		call("the new CA alone on " + host)
	}
	if !ids["paris"].Expires().After(ends) {
		t.Errorf("it ends %v, and ended %v", ids["paris"].Expires(), ends)
	}
	for host, heard := range told {
		errs := *heard
		if len(errs) != 4 || errs[0] != nil || errs[1] == nil || errs[2] != nil || errs[3] != nil {
			t.Errorf("%s was told %v; want: both CAs, a certificate without its key, its key, the new CA", host, errs)
		}
	}
}

// What does not fit, or is another's, does not count, and is told once.
func TestRenewedWrongly(t *testing.T) {
	for _, c := range []struct {
		name string
		put  func(t *testing.T, dir string)
		want string
	}{
		{"another CA's", func(t *testing.T, dir string) { put(t, dir, of(issued(t, time.Now()), "ca.pem")...) }, "unknown authority"},
		{"another host's", func(t *testing.T, dir string) {
			other := issued(t, time.Now())
			put(t, dir, of(other, "ca.pem")...)
			for from, to := range map[string]string{"rome.pem": "paris.pem", "rome.key": "paris.key"} {
				if err := os.Rename(filepath.Join(other, from), filepath.Join(dir, to)); err != nil {
					t.Fatal(err)
				}
			}
		}, `is host "rome"'s, and this is paris`},
		{"one that has ended", func(t *testing.T, dir string) {
			put(t, dir, of(issued(t, time.Now().AddDate(-2, 0, 0)), "ca.pem", "paris.pem", "paris.key")...)
		}, "expired"},
		{"none", func(t *testing.T, dir string) {
			if err := os.Remove(filepath.Join(dir, "paris.key")); err != nil {
				t.Fatal(err)
			}
		}, "no such file"},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := issued(t, time.Now())
			var told []error
			id := paris(t, dir, &told)
			was := id.papers()
			c.put(t, dir)
			for range 3 {
				if id.papers() != was {
					t.Error("it counts")
				}
			}
			if len(told) != 1 || told[0] == nil || !strings.Contains(told[0].Error(), c.want) || strings.Contains(told[0].Error(), "\n") {
				t.Errorf("told %v, want once, with %q", told, c.want)
			}
			if err := id.Check(time.Now()); err != nil || id.Host() != "paris" {
				t.Errorf("it is %q's, %v", id.Host(), err)
			}
		})
	}
}

// paris is the identity in dir, and what it tells of its renewals is added to told.
func paris(t *testing.T, dir string, told *[]error) *Identity {
	t.Helper()
	id, err := LoadIdentity(filepath.Join(dir, "ca.pem"), filepath.Join(dir, "paris.pem"), filepath.Join(dir, "paris.key"))
	if err != nil {
		t.Fatal(err)
	}
	id.OnRenewed(func(err error) { *told = append(*told, err) })
	return id
}

// A certificate that is not valid yet, as one of a CA whose clock is ahead, counts from when it is: nobody touches its
// files again.
func TestRenewedAheadOfTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := issued(t, time.Now())
		var told []error
		id := paris(t, dir, &told)
		ends := id.Expires()
		next, ahead := t.TempDir(), time.Now().Add(2*time.Hour)
		ca, err := NewFleetCA(next, ahead)
		if err != nil {
			t.Fatal(err)
		}
		later := certificate("paris", ahead)
		later.NotBefore = ahead.Add(-time.Hour)
		if err := ca.issue("paris", later); err != nil {
			t.Fatal(err)
		}
		put(t, dir, of(next, "ca.pem", "paris.pem", "paris.key")...)
		for range 3 {
			if id.Expires() != ends {
				t.Fatal("it counts before it is valid")
			}
		}
		time.Sleep(2 * time.Hour)
		for range 3 {
			if !id.Expires().After(ends) {
				t.Fatal("it does not count, though it is valid by now")
			}
		}
		if len(told) != 2 || told[0] == nil || told[1] != nil {
			t.Errorf("told %v, want once why not, and once that it counts", told)
		}
	})
}

// Storage that hangs holds up nobody who connects for long; what is there counts when it goes on.
func TestRenewedOnStorageThatHangs(t *testing.T) {
	dir := issued(t, time.Now())
	ca := filepath.Join(dir, "ca.pem")
	id, err := LoadIdentity(ca, filepath.Join(dir, "paris.pem"), filepath.Join(dir, "paris.key"))
	if err != nil {
		t.Fatal(err)
	}
	told := make(chan error, 1)
	id.OnRenewed(func(err error) { told <- err })
	was, hangs := id.papers(), filepath.Join(dir, "hangs")
	data, err := os.ReadFile(ca)
	if err == nil {
		err = unix.Mkfifo(hangs, 0o600)
	}
	if err == nil {
		err = os.Rename(hangs, ca)
	}
	if err != nil {
		t.Fatal(err)
	}
	got := make(chan *papers)
	for range 2 {
		go func() { got <- id.papers() }()
	}
	for range 2 {
		select {
		case now := <-got:
			if now != was {
				t.Error("what was not read counts")
			}
		case <-time.After(20 * time.Second):
			t.Error("who connects waits for the files")
		}
	}
	if err := os.WriteFile(ca, data, 0o600); err != nil { // whoever reads it goes on
		t.Fatal(err)
	}
	if err := <-told; err != nil || id.papers() == was {
		t.Errorf("what was read then does not count: %v", err)
	}
}
