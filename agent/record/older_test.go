package record

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"godwit/agent/statefile"
	"godwit/migration"
)

// years is a store whose history has n migrations more than are kept whole; these, the oldest of which is the first,
// and what each came to.
func years(t *testing.T, n int) (*Store, []Report) {
	s := NewStore("paris", filepath.Join(t.TempDir(), "history"), slog.New(slog.DiscardHandler))
	if err := os.Mkdir(s.dir, 0o700); err != nil {
		t.Fatal(err)
	}
	var old []Report
	for i := range n {
		rep := Report{
			ID: fmt.Sprintf("m-%02x%06x", i%4, i), Guest: "web", Epoch: uint64(i), From: "paris", To: "rome", Outcome: migration.Completed, Requested: int64(i), Ended: int64(i + 1),
			Resumed: 7, Handed: 8, Left: []string{"web-1-root.raw"}, Notes: []string{"a word"}, Survival: &Survival{Connections: make([]Survivor, 3)},
		}
		if i%2 > 0 {
			rep.From, rep.To, rep.Left = "rome", "paris", nil
		}
		if i%3 == 0 {
			rep.Outcome, rep.Problem = migration.Aborted, &migration.Problem{Code: migration.CodeAsked, Text: "why"}
		}
		s.keep(t, rep, time.Unix(int64(i), 0))
		old = append(old, rep)
	}
	for i := range recordsKept {
		id := fmt.Sprintf("m-ff%06x", i)
		if err := os.WriteFile(filepath.Join(s.dir, id+".json"), fmt.Appendf(nil, `{"id":%q,"requested":1000,"ended":1000}`, id), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return s, old
}

// fileOf is the name of a report's file.
func fileOf(rep Report) string {
	if rep.To == "paris" {
		return rep.ID + "-destination.json"
	}
	return rep.ID + ".json"
}

func (s *Store) keep(t *testing.T, rep Report, at time.Time) {
	t.Helper()
	data, err := json.Marshal(rep)
	path := filepath.Join(s.dir, fileOf(rep))
	if err = errors.Join(err, os.WriteFile(path, data, 0o600), os.Chtimes(path, at, at)); err != nil {
		t.Fatal(err)
	}
}

// isWhole says whether a report is kept whole; what matters of it must be known in any case.
func (s *Store) isWhole(t *testing.T, rep Report) bool {
	t.Helper()
	got, known, err := s.History(rep.ID)
	same, hasSame, sameErr := s.Ended(fileOf(rep))
	if !known || err != nil || !hasSame || sameErr != nil || !reflect.DeepEqual(got, same) {
		t.Fatalf("%s: known %v, %v; by its name %v, %v", rep.ID, known, err, hasSame, sameErr)
	}
	whole := got.Survival != nil
	if got.Notes, got.Survival = rep.Notes, rep.Survival; !reflect.DeepEqual(got, rep) {
		t.Fatalf("%s is %+v, want %+v", rep.ID, got, rep)
	}
	return whole
}

func (s *Store) shorten(t *testing.T) {
	t.Helper()
	if err := s.Shorten(t.Context(), func(string) bool { return false }); err != nil {
		t.Fatal(err)
	}
}

// TestHistoryOfYears: the newest migrations are kept whole, and of the others what another host may ask for and what
// proves whose a disk is, in as many files however many they are.
func TestHistoryOfYears(t *testing.T) {
	s, old := years(t, 40)
	s.shorten(t)
	for _, rep := range old {
		if s.isWhole(t, rep) {
			t.Errorf("%s is kept whole", rep.ID)
		}
	}
	whole, err := os.ReadDir(s.dir)
	older, oerr := os.ReadDir(s.older)
	if err != nil || oerr != nil || len(whole) != recordsKept || len(older) != 4 {
		t.Errorf("%d files, %v, and %d of what is older, %v", len(whole), err, len(older), oerr)
	}
	if listed := s.Reports(); len(listed) != recordsKept || listed[recordsKept-1].Requested != 1000 {
		t.Errorf("%d are listed, at last %s", len(listed), listed[len(listed)-1].ID)
	}
	for _, name := range []string{"m-007fffff.json", "m-00", ".json", "m-../..ab.json"} {
		if _, known, err := s.Ended(name); known || err != nil {
			t.Errorf("of %q there is %v, %v", name, known, err)
		}
	}
}

// TestShortIsShort: whatever a report lists, its short form has a few lines. A field that grows with a guest's
// connections, or with a migration's steps, is not to be kept for good.
func TestShortIsShort(t *testing.T) {
	var long Report
	v := reflect.ValueOf(&long).Elem()
	for i := range v.NumField() {
		if f := v.Field(i); f.Kind() == reflect.Slice {
			f.Set(reflect.MakeSlice(f.Type(), 100, 100))
		}
	}
	long.Survival = &Survival{Connections: make([]Survivor, 100)}
	long.WireBytes = map[string]int64{"public-public": 1}
	long.Left = []string{"web-1-root.raw"}
	long.RunsThere = true
	short := long.short()
	if !short.RunsThere { // a destination may ask for that for as long
		t.Error("that the guest was at its destination is lost")
	}
	data, err := json.Marshal(short)
	if err != nil || len(data) > 1000 {
		t.Errorf("%d bytes, %v: %s", len(data), err, data)
	}
	if again := short.short(); !reflect.DeepEqual(again, short) {
		t.Errorf("the short form of it is another: %+v", again)
	}
}

// TestPutAwayAgain: one whose removal was lost with the host's power, or that did not get that far, is there once, and
// is put away by the next look; one that is amended is whole again until then.
func TestPutAwayAgain(t *testing.T) {
	s, all := years(t, 4)
	file := filepath.Join(s.dir, fileOf(all[0]))
	was, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	s.shorten(t)
	if err := os.WriteFile(file, was, 0o600); err != nil { // it is back
		t.Fatal(err)
	}
	if err := os.Chtimes(file, time.Time{}, time.Unix(0, 0)); err != nil {
		t.Fatal(err)
	}
	if !s.isWhole(t, all[0]) {
		t.Error("what is there whole does not count")
	}
	s.Amend(all[1].ID, func(r *Report) { r.TunnelDown, all[1].TunnelDown = 7, 7 })
	s.isWhole(t, all[1])
	all[2].Epoch += 5 // it was tried anew
	s.keep(t, all[2], time.Now())
	s.isWhole(t, all[2])
	for _, rep := range all[:4] { // and long ago by now
		if err := os.Chtimes(filepath.Join(s.dir, fileOf(rep)), time.Time{}, time.Unix(0, 0)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Fatal(err)
		}
	}
	s.keep(t, Report{ID: "m-f0000001", From: "paris", Outcome: migration.Completed, Ended: 1}, time.Now())
	s.keep(t, Report{ID: "m-f0000002", From: "paris", Outcome: migration.Completed, Ended: 1}, time.Now())
	s.shorten(t)
	for _, rep := range all[:4] {
		if s.isWhole(t, rep) {
			t.Errorf("%s was not put away", rep.ID)
		}
	}
	if err := os.RemoveAll(s.dir); err != nil {
		t.Fatal(err)
	}
	listed := s.Reports() // where those that are whole are few
	ids := map[string]bool{}
	for _, rep := range listed {
		ids[rep.ID] = true
	}
	if len(listed) != 6 || len(ids) != 6 {
		t.Errorf("%d are kept in short, %d of them once", len(listed), len(ids))
	}
}

// TestPutAwayInVain: where what is older cannot be read or written everything stays as it is; so does a file that says
// nothing, and one that goes on changing.
func TestPutAwayInVain(t *testing.T) {
	s, all := years(t, 3)
	leased := func(id string) bool { return id == all[2].ID }
	damaged := s.olderFile(fileOf(all[0]))
	for _, err := range []error{
		os.Mkdir(s.older, 0o700), os.WriteFile(damaged, []byte(`{"m-`), 0o600),
		os.WriteFile(filepath.Join(s.dir, fileOf(all[1])), []byte(`{`), 0o600), os.Chtimes(filepath.Join(s.dir, fileOf(all[1])), time.Time{}, time.Unix(1, 0)),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Shorten(t.Context(), leased); !errors.Is(err, statefile.ErrUnread) {
		t.Errorf("it says %v", err)
	}
	if !s.isWhole(t, all[0]) || !s.isWhole(t, all[2]) {
		t.Error("it was put away")
	}
	if _, known, err := s.Ended(fileOf(all[1])); known || !errors.Is(err, statefile.ErrUnread) {
		t.Errorf("what says nothing is known: %v, %v", known, err)
	}
	if data, err := os.ReadFile(damaged); err != nil || string(data) != `{"m-` {
		t.Errorf("what cannot be read was changed to %q, %v", data, err)
	}
	if _, known, err := s.History("m-00ffffff"); known || !errors.Is(err, statefile.ErrUnread) { // it may be among those
		t.Errorf("one that is in no other file: known %v, %v", known, err)
	}
	if err := errors.Join(os.RemoveAll(s.older), os.WriteFile(s.older, nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	if err := s.Shorten(t.Context(), leased); err == nil || !s.isWhole(t, all[0]) {
		t.Errorf("nothing can be written, and it says %v", err)
	}
}

// TestPutAwayLater: an agent that is to end does not put away the thousands that a release before this one has left: it
// is waited for.
func TestPutAwayLater(t *testing.T) {
	s, all := years(t, 4)
	ctx, end := context.WithCancel(t.Context())
	asked := 0
	err := s.Shorten(ctx, func(string) bool {
		if asked++; asked == len(all) {
			end()
		}
		return false
	})
	if err != nil {
		t.Error(err)
	}
	for _, rep := range all {
		if !s.isWhole(t, rep) {
			t.Errorf("%s was put away", rep.ID)
		}
	}
}

// TestAmendBesideWhatCannotBeRead: a report that is there whole is amended, and nothing else is said.
func TestAmendBesideWhatCannotBeRead(t *testing.T) {
	s, all := years(t, 2)
	var said bytes.Buffer
	s.log = slog.New(slog.NewTextHandler(&said, nil))
	for _, rep := range all {
		if err := errors.Join(os.MkdirAll(s.older, 0o700), os.WriteFile(s.olderFile(fileOf(rep)), []byte(`{"m-`), 0o600)); err != nil {
			t.Fatal(err)
		}
		s.Amend(rep.ID, func(r *Report) { r.TunnelDown = 7 })
		if rep.TunnelDown = 7; !s.isWhole(t, rep) || said.Len() > 0 {
			t.Errorf("%s: it says %q", rep.ID, said.String())
		}
	}
	s.Amend("m-00ffffff", func(*Report) { t.Error("it may be among what cannot be read") })
	if !strings.Contains(said.String(), "left as it is") {
		t.Errorf("it says %q", said.String())
	}
}

// TestPutAwayTooMuch: a report stays whole where the file of its short form would become too long to be read: another
// host chooses the ids of migrations to here, and may choose alike ones.
func TestPutAwayTooMuch(t *testing.T) {
	s, all := years(t, 1)
	long := fmt.Appendf(nil, `{"m-00ffffff.json":{"id":"m-00ffffff","problem":{"text":"%s"}}}`, strings.Repeat("a", 16<<20-500))
	if err := errors.Join(os.Mkdir(s.older, 0o700), os.WriteFile(s.olderFile("m-00ffffff.json"), long, 0o600)); err != nil {
		t.Fatal(err)
	}
	if err := s.Shorten(t.Context(), func(string) bool { return false }); err == nil || !s.isWhole(t, all[0]) {
		t.Errorf("it was put away, %v", err)
	}
	if data, err := os.ReadFile(s.olderFile("m-00ffffff.json")); err != nil || !bytes.Equal(data, long) {
		t.Errorf("what was there is %d bytes long, %v", len(data), err)
	}
}

// TestShortsOfOthers: short forms that say what cannot be meant are not believed.
func TestShortsOfOthers(t *testing.T) {
	s := NewStore("paris", filepath.Join(t.TempDir(), "history"), slog.New(slog.DiscardHandler))
	for _, text := range []string{`[]`, `{"m-00000001.json":null}`, `{"m-00000001.json":{"id":"m-00000002"}}`, `{"m-00000001.json":{"id":"m-00000001","outcome":"fine"}}`} {
		if err := errors.Join(os.MkdirAll(s.older, 0o700), os.WriteFile(filepath.Join(s.older, "00.json"), []byte(text), 0o600)); err != nil {
			t.Fatal(err)
		}
		if _, known, err := s.Ended("m-00000001.json"); known || !errors.Is(err, statefile.ErrUnread) {
			t.Errorf("%s: known %v, %v", text, known, err)
		}
	}
}

// TestWhichAreBeyond: too many, or too much; and by a clock that has been set back since what it has written by then is
// no newer than what was written after that.
func TestWhichAreBeyond(t *testing.T) {
	now := time.Now()
	list := func(n int, at time.Time, size int) (all []fs.FileInfo) {
		dir := fstest.MapFS{}
		for i := range n {
			dir[fmt.Sprintf("m-%08x", i)] = &fstest.MapFile{ModTime: at.Add(-time.Duration(i) * time.Hour), Data: make([]byte, size)}
		}
		for name := range dir {
			info, err := dir.Stat(name)
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, info)
		}
		return all
	}
	for name, c := range map[string]struct {
		files []fs.FileInfo
		want  int
	}{
		"few": {list(recordsKept, now, 10), 0}, "too many": {list(recordsKept+3, now, 10), 3}, "too much": {list(20, now, 15<<20), 3},
		"none": {nil, 0},
	} {
		newestFirst(c.files, now)
		old := beyond(c.files)
		if len(old) != c.want {
			t.Errorf("%s: %d are beyond, want %d", name, len(old), c.want)
		}
		for i, f := range old {
			if want := fmt.Sprintf("m-%08x", len(c.files)-c.want+i); f.Name() != want {
				t.Errorf("%s: %s is beyond, and not %s", name, f.Name(), want)
			}
		}
	}
	later := now.AddDate(10, 0, 0)
	files := slices.Concat(list(recordsKept, later, 10), list(5, now, 11))
	newestFirst(files, now)
	if old := beyond(files); len(old) != 5 || slices.ContainsFunc(old, func(f fs.FileInfo) bool { return !f.ModTime().After(now) }) {
		t.Errorf("the clock was set back: %d are beyond", len(old))
	}
	files = slices.Concat(list(recordsKept, now, 10), list(5, now.Add(14*time.Hour), 11)) // it took the local time for UTC
	newestFirst(files, now)
	if old := beyond(files); len(old) != 5 || slices.ContainsFunc(old, func(f fs.FileInfo) bool { return f.ModTime().After(now) }) {
		t.Errorf("the clock was set back by hours: %d are beyond, and not the oldest", len(old))
	}
}
