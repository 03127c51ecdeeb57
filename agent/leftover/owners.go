package leftover

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"

	"godwit/agent/care"
	"godwit/agent/config"
	"godwit/agent/detour"
	"godwit/agent/journal"
	"godwit/agent/statefile"
	"godwit/migration"
)

// owners are what a host's things may belong to, as its STATE says.
type owners struct {
	held       map[string]care.Held // guests under care, by name
	migrations map[string]underWay  // by id
	detours    []detour.Detour
	tunnels    map[string]detour.Detour // by device
	taps       map[string]string        // owner, by name
	dirs       map[string]string        // owner, by runtime directory
	disks      map[string]string        // owner, by path
	written    []Thing                  // journals, and what else cannot be read
	sealed     bool                     // something cannot be read: what it owns is not known
	history    map[string][]ended       // by guest; nil: not read yet
	unread     error                    // why it has none

	endedUnread bool // it is not known which disks all of the guests had that have ended here
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

// check says of which migration it is not.
func (u underWay) check(id string) error {
	if p := u.plan(); u.Side != "source" && u.Side != "destination" || p.ID != id || !config.IsGuestName(p.Guest) {
		return fmt.Errorf("side %.20q, migration %.100q of guest %.100q", u.Side, p.ID, p.Guest)
	}
	return nil
}

func ownerOf(d detour.Detour) string {
	if d.Leased {
		return "lease of detour " + d.ID
	}
	return "detour " + d.ID
}

func readOwners(c *config.Config) (*owners, error) {
	o := &owners{
		held: map[string]care.Held{}, migrations: map[string]underWay{},
		tunnels: map[string]detour.Detour{}, taps: map[string]string{}, dirs: map[string]string{}, disks: map[string]string{},
	}
	// Journals first: a guest that lands is under care before its journal ends.
	if err := o.readJournals(filepath.Join(c.State, "journal")); err != nil {
		return nil, err
	}
	if err := o.readGuests(filepath.Join(c.State, "guests")); err != nil {
		return nil, err
	}
	if err := o.readEnded(filepath.Join(c.State, care.EndedFolder)); err != nil { // a guest is that before it leaves the care
		return nil, err
	}
	detours := filepath.Join(c.State, "detours.json")
	store, err := detour.Load(detours, c.Network)
	if err != nil {
		o.seal(Thing{Kind: File, Name: detours}, err, "no agent starts here until then; with a file that is moved away it is forgotten what leads to guests")
		return o, nil
	}
	o.detours = store.List("")
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
		err := journal.Read(dir, id, &u)
		if err == nil {
			err = u.check(id)
		}
		switch {
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
		name, is := strings.CutSuffix(f.Name(), ".json")
		if !is {
			continue
		}
		p := filepath.Join(dir, f.Name())
		var h care.Held
		err := statefile.Read(p, &h)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err == nil && h.Description.Name != name {
			err = fmt.Errorf("read %s: it is of guest %s; %w", p, h.Description.Name, statefile.ErrUnread)
		}
		if err != nil { // as the agent has it
			o.seal(Thing{Kind: Guest, Name: p, Guest: name}, err, "the guest is left as it is until the agent is started again after that")
			continue
		}
		o.held[h.Description.Name] = h
		o.own(h, "guest "+h.Description.Name)
	}
	return nil
}

// readEnded notes which disks guests had that have ended: they may be the newest. What cannot be read endedGuests lists.
func (o *owners) readEnded(dir string) error {
	paths, err := statefile.Files(dir)
	for _, path := range paths {
		var e care.Ended
		err := statefile.Read(path, &e)
		o.endedUnread = o.endedUnread || err != nil && !errors.Is(err, fs.ErrNotExist)
		if err != nil {
			continue
		}
		for _, d := range e.Description.Disks {
			o.disks[d.Path] = cmp.Or(o.disks[d.Path], fmt.Sprintf("guest %s, which has ended", e.Description.Name))
		}
	}
	return err
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
		o.dirs[h.Dir], o.dirs[realPath(h.Dir)] = owner, owner
	}
	if h.Description.QMP != "" { // of a QEMU that was found in such a directory, without care, and adopted
		o.dirs[realPath(filepath.Dir(h.Description.QMP))] = owner
	}
	for _, d := range h.Description.Disks {
		o.disks[d.Path] = owner
	}
}

// ofDir is what owns a runtime directory, by whichever name it has that.
func (o *owners) ofDir(dir string) string { return cmp.Or(o.dirs[dir], o.dirs[realPath(dir)]) }

// realPath is where a path leads, if anything is there.
func realPath(path string) string {
	if at, err := filepath.EvalSymlinks(path); err == nil {
		return at
	}
	return path
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
