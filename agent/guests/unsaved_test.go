package guests

import (
	"encoding/json"
	"net/netip"
	"os"
	"path/filepath"
	"testing"

	"godwit/agent/care"
	"godwit/agent/config"
	"godwit/migration"
)

// TestGuestIsWrittenDownLater: what changed of a guest while the disk was full is on it when there is room again, though nobody changes it
// anew: the next agent would think that the guest has an address still which it gave up. One that has left by then is not written down again.
func TestGuestIsWrittenDownLater(t *testing.T) {
	s := In(filepath.Join(t.TempDir(), "guests"))
	held := func(name string) *Guest {
		return New(care.Held{Description: config.Description{Name: name}, Addresses: []migration.Address{{Prefix: netip.MustParsePrefix("10.1.1.20/24")}}}, nil)
	}
	web, gone := held("web"), held("gone")
	for _, g := range []*Guest{web, gone} {
		if err := s.Save(g); err != nil {
			t.Fatal(err)
		}
		g.Remember(func(h *care.Held) { h.Addresses = nil })
	}
	away := s.dir + ".away"
	if err := os.Rename(s.dir, away); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(s.dir, nil, 0o600); err != nil { // a file where its directory should be
		t.Fatal(err)
	}
	for _, g := range []*Guest{web, gone} {
		if err := s.SaveIfHere(g); err == nil {
			t.Fatal("written to what is no directory")
		}
	}
	if err := s.CatchUp(); err == nil || len(s.unsaved) != 2 {
		t.Errorf("%v; not written down: %v", err, s.unsaved)
	}
	if err := os.Remove(s.dir); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(away, s.dir); err != nil {
		t.Fatal(err)
	}
	if err := s.Forget(gone); err != nil {
		t.Fatal(err)
	}
	if err := s.CatchUp(); err != nil || len(s.unsaved) != 0 {
		t.Errorf("%v; not written down: %v", err, s.unsaved)
	}
	if left, err := os.ReadDir(s.dir); err != nil || len(left) != 1 {
		t.Errorf("on the disk %v, %v", left, err)
	}
	if h := writtenOf(t, s, "web"); h.Description.Name != "web" || len(h.Addresses) != 0 {
		t.Errorf("on the disk %+v", h)
	}
}

// writtenOf is what the next agent would know of a guest.
func writtenOf(t *testing.T, s *Set, name string) (h care.Held) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(s.dir, name+".json"))
	if err == nil {
		err = json.Unmarshal(data, &h)
	}
	if err != nil {
		t.Error(err)
	}
	return h
}
