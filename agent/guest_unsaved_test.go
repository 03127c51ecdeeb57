package agent

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
	a := bareAgent(t, &config.Config{Host: "paris"})
	held := func(name string) *Guest {
		return &Guest{Held: care.Held{Description: config.Description{Name: name}, Addresses: []migration.Address{{Prefix: netip.MustParsePrefix("10.1.1.20/24")}}}}
	}
	web, gone := held("web"), held("gone")
	for _, g := range []*Guest{web, gone} {
		if err := a.guests.save(g); err != nil {
			t.Fatal(err)
		}
		g.remember(func(h *care.Held) { h.Addresses = nil })
	}
	away := a.guests.dir + ".away"
	if err := os.Rename(a.guests.dir, away); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(a.guests.dir, nil, 0o600); err != nil { // a file where its directory should be
		t.Fatal(err)
	}
	for _, g := range []*Guest{web, gone} {
		if err := a.guests.saveIfHere(g); err == nil {
			t.Fatal("written to what is no directory")
		}
	}
	if err := a.guests.catchUp(); err == nil || len(a.guests.unsaved) != 2 {
		t.Errorf("%v; not written down: %v", err, a.guests.unsaved)
	}
	if err := os.Remove(a.guests.dir); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(away, a.guests.dir); err != nil {
		t.Fatal(err)
	}
	if err := a.guests.forget(gone); err != nil {
		t.Fatal(err)
	}
	if err := a.guests.catchUp(); err != nil || len(a.guests.unsaved) != 0 {
		t.Errorf("%v; not written down: %v", err, a.guests.unsaved)
	}
	if left, err := os.ReadDir(a.guests.dir); err != nil || len(left) != 1 {
		t.Errorf("on the disk %v, %v", left, err)
	}
	if h := writtenOf(t, a, "web"); h.Description.Name != "web" || len(h.Addresses) != 0 {
		t.Errorf("on the disk %+v", h)
	}
}

// writtenOf is what the next agent would know of a guest.
func writtenOf(t *testing.T, a *Agent, name string) (h care.Held) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(a.guests.dir, name+".json"))
	if err == nil {
		err = json.Unmarshal(data, &h)
	}
	if err != nil {
		t.Error(err)
	}
	return h
}

// TestGuestsCatchUp: that is done all the time.
func TestGuestsCatchUp(t *testing.T) {
	a, g, _ := leasing(t)
	a.guests.unsaved = map[string]*Guest{g.name(): g}
	a.catchUp()
	if h := writtenOf(t, a, g.name()); h.Description.Name != g.name() {
		t.Errorf("%+v", h)
	}
}
