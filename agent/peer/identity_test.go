package peer

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// A key that takes the place of another is for its owner alone, whatever was there.
func TestKeysAreForTheirOwner(t *testing.T) {
	dir := t.TempDir()
	key, elsewhere := filepath.Join(dir, "paris.key"), filepath.Join(t.TempDir(), "elsewhere")
	for name, lay := range map[string]func() error{
		"what all may read": func() error { return os.WriteFile(key, nil, 0o644) },
		"what leads away":   func() error { return errors.Join(os.WriteFile(elsewhere, nil, 0o644), os.Symlink(elsewhere, key)) },
	} {
		if err := lay(); err != nil {
			t.Fatal(err)
		}
		ca, err := NewFleetCA(dir, time.Now())
		if err == nil {
			err = ca.Issue("paris", time.Now())
		}
		info, serr := os.Lstat(key)
		if err := errors.Join(err, serr); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if info.Mode() != 0o600 {
			t.Errorf("%s: the key has the mode %v", name, info.Mode())
		}
		if left, err := os.ReadDir(dir); err != nil || len(left) != 3 {
			t.Errorf("%s: left %v, %v", name, left, err)
		}
		os.Remove(key)
	}
}

func TestLoadIdentityErrors(t *testing.T) {
	dir := t.TempDir()
	in := func(name string) string { return filepath.Join(dir, name) }
	for _, host := range []string{"paris", "rome"} {
		ca, err := NewFleetCA(dir, time.Now())
		if err != nil {
			t.Fatal(err)
		}
		if err := ca.Issue(host, time.Now()); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(in("empty.pem"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ name, ca, cert, key, want string }{
		{"no ca", "none.pem", "paris.pem", "paris.key", "none.pem"},
		{"nothing in the ca", "empty.pem", "paris.pem", "paris.key", "no certificate in it"},
		{"no certificate", "ca.pem", "none.pem", "paris.key", "none.pem"},
		{"another's key", "ca.pem", "paris.pem", "rome.key", "private key does not match"},
	} {
		_, err := LoadIdentity(in(c.ca), in(c.cert), in(c.key))
		if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n") || !strings.HasSuffix(err.Error(), "; "+Cure) {
			t.Errorf("%s: %v, want one line that has %q and what to do", c.name, err, c.want)
		}
	}
	info, err := os.Stat(in("paris.key"))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("key: %v, %v", info.Mode(), err)
	}
}
