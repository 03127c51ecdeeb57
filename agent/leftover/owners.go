package leftover

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"godwit/agent/care"
	"godwit/agent/config"
	"godwit/agent/journal"
	"godwit/migration"
)

// owners are what a host's things may belong to, as its STATE says.
type owners struct {
	held       map[string]care.Held     // guests under care, by name
	migrations map[string]underWay      // by id
	detours    map[string]writtenDetour // by id
	tunnels    map[string]writtenDetour // by device
	taps       map[string]string        // owner, by name
	dirs       map[string]string        // owner, by runtime directory
	disks      map[string]string        // owner, by path
	written    []Thing                  // journals, and what else cannot be read
	sealed     bool                     // there is such a thing: what it owns is not known
	history    map[string][]ended       // by guest; nil: not read yet
}

// underWay is what matters here of a journal's last record, of either side.
type underWay struct {
	Side  string         `json:"side"`
	Plan  migration.Plan `json:"plan"`
	Offer struct {
		Plan migration.Plan `json:"plan"`
	} `json:"offer"`
	Held  care.Held `json:"held"`
	State struct {
		Course  string `json:"course"`
		Landing string `json:"landing"`
	} `json:"state"`
}

func (u underWay) plan() migration.Plan {
	if u.Side == "destination" {
		return u.Offer.Plan
	}
	return u.Plan
}

// writtenDetour is what matters here of an entry of detours.json.
type writtenDetour struct {
	ID     string `json:"id"`
	Guest  string `json:"guest"`
	Leased bool   `json:"leased"`
	Tunnel struct {
		Name string
	} `json:"tunnel"`
}

func (d writtenDetour) owner() string {
	if d.Leased {
		return "lease of detour " + d.ID
	}
	return "detour " + d.ID
}

func readOwners(c *config.Config) (*owners, error) {
	o := &owners{
		held: map[string]care.Held{}, migrations: map[string]underWay{}, detours: map[string]writtenDetour{},
		tunnels: map[string]writtenDetour{}, taps: map[string]string{}, dirs: map[string]string{}, disks: map[string]string{},
	}
	// Journals first: a guest that lands is under care before its journal ends.
	if err := o.readJournals(filepath.Join(c.State, "journal")); err != nil {
		return nil, err
	}
	if err := o.readGuests(filepath.Join(c.State, "guests")); err != nil {
		return nil, err
	}
	detours := filepath.Join(c.State, "detours.json")
	if err := readJSON(detours, &o.detours); err != nil && !errors.Is(err, fs.ErrNotExist) {
		o.detours = nil
		o.seal(Thing{Kind: File, Name: detours}, err, "no agent starts here: mend the file, or move it away, with which what leads to guests is forgotten")
	}
	for _, d := range o.detours {
		o.tunnels[d.Tunnel.Name] = d
	}
	return o, nil
}

func (o *owners) readJournals(dir string) error {
	ids, err := journal.Unfinished(dir)
	if err != nil {
		return err
	}
	for _, id := range ids {
		var u underWay
		t := Thing{Kind: Journal, Name: id + ".journal", Migration: id}
		switch err := journal.Read(dir, id, &u); {
		case errors.Is(err, fs.ErrNotExist):
			continue // it ended just now
		case errors.Is(err, journal.ErrNoState):
			t.remove = func(context.Context) error { return journal.Discard(dir, id) }
		case err != nil:
			o.seal(t, err, "its guest is left as it is: mend the file, or remove it when you know where the guest runs")
			continue
		default:
			t.Guest, t.Owner = u.plan().Guest, u.describe()
			o.migrations[id] = u
			o.own(u.Held, migrationOwner+id)
		}
		o.written = append(o.written, t)
	}
	return nil
}

func (u underWay) describe() string {
	if u.Side == "destination" {
		return fmt.Sprintf("the migration from %s, under way (%s)", u.plan().From, u.State.Landing)
	}
	return fmt.Sprintf("the migration to %s, under way (%s)", u.plan().To, u.State.Course)
}

func (o *owners) readGuests(dir string) error {
	files, err := entries(dir)
	if err != nil {
		return err
	}
	for _, f := range files {
		if !strings.HasSuffix(f.Name(), ".json") {
			continue
		}
		p := filepath.Join(dir, f.Name())
		var h care.Held
		if err := readJSON(p, &h); errors.Is(err, fs.ErrNotExist) {
			continue
		} else if err != nil {
			o.seal(Thing{Kind: Guest, Name: p, Guest: strings.TrimSuffix(filepath.Base(p), ".json")}, err,
				"the guest is left as it is: mend the file, or move it away, and start the agent again")
			continue
		}
		o.held[h.Description.Name] = h
		o.own(h, "guest "+h.Description.Name)
	}
	return nil
}

// seal lists what cannot be read, and so calls nothing left over.
func (o *owners) seal(t Thing, why error, remedy string) {
	t.Stays = fmt.Sprintf("cannot be read (%v); %s", why, remedy)
	o.written, o.sealed = append(o.written, t), true
}

// own notes what a guest has here.
func (o *owners) own(h care.Held, owner string) {
	for _, t := range h.Taps {
		o.taps[t] = owner
	}
	if h.Dir != "" {
		o.dirs[h.Dir] = owner
	}
	for _, d := range h.Description.Disks {
		o.disks[d.Path] = owner
	}
}

// migrationOwner begins the name of a migration that owns something.
const migrationOwner = "migration "

// ofMigration finds the migration under way whose name for things ends in suffix.
func (o *owners) ofMigration(suffix string) (string, bool) {
	_, ok := o.migrations["m-"+suffix]
	return "m-" + suffix, ok
}

// moving says whether a migration of the guest is under way: it may be making things
// that no record names yet.
func (o *owners) moving(guest string) (id string, ok bool) {
	for id, u := range o.migrations {
		if u.plan().Guest == guest {
			return id, true
		}
	}
	return "", false
}

func readJSON(path string, value any) error {
	data, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(data, value); err != nil {
		return fmt.Errorf("read %s: %w", path, err)
	}
	return nil
}
