package leftover

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"godwit/agent/care"
	"godwit/agent/config"
	"godwit/agent/record"
	"godwit/migration"
	"godwit/vm"
)

// past is a report of guest web's migration by that epoch, which took a second and ended so long ago by
// the clock of its time.
func past(from, to string, epoch uint64, outcome migration.Outcome, ago time.Duration) record.Report {
	ended := time.Now().Add(-ago)
	return record.Report{
		ID: "m-00000001", Guest: "web", Epoch: epoch, From: from, To: to, Outcome: outcome,
		Requested: ended.Add(-time.Second).UnixNano(), Ended: ended.UnixNano(),
	}
}

// left is one that completed, and left a disk's file here.
func left(file string, epoch uint64, ago time.Duration) record.Report {
	rep := past("here", "there", epoch, migration.Completed, ago)
	rep.Left = []string{file}
	return rep
}

// setBack is a report of a migration within which the clock was set back by three hours.
func setBack(rep record.Report) record.Report {
	const by = 3 * time.Hour
	rep.Requested, rep.Ended, rep.Stepped = rep.Requested+int64(by), rep.Ended+int64(by), -int64(by)
	return rep
}

// setOn is a report of a migration within which the clock was set on by three hours.
func setOn(rep record.Report) record.Report {
	rep.Stepped = int64(3 * time.Hour)
	return rep
}

// TestStale: a disk is called left over only where a migration proves that it is not the only copy.
func TestStale(t *testing.T) {
	begun, completed, aborted := time.Now(), migration.Completed, migration.Aborted
	for name, c := range map[string]struct {
		file    string
		held    string // a guest with a disk that is here with a right of epoch 5
		history []record.Report
		stale   bool
	}{
		"nothing is known":                                           {file: "web-3-root.raw"},
		"its guest left it":                                          {"web-3-root.raw", "", []record.Report{left("web-3-root.raw", 4, 0)}, true},
		"its guest left with other disks":                            {"web-3-root.raw", "", []record.Report{left("web-1-root.raw", 4, 0)}, false}, // it was started anew, with those
		"it left before, by a clock ahead":                           {"web-3-root.raw", "", []record.Report{left("web-3-root.raw", 2, -time.Hour)}, false},
		"it came by the same":                                        {"web-3-root.raw", "", []record.Report{past("there", "here", 3, completed, 0)}, false},
		"it is here, by a later right":                               {"web-3-root.raw", "web", nil, false}, // perhaps started anew since
		"it left from there, and is here again":                      {"web-3-root.raw", "web", []record.Report{left("web-3-root.raw", 4, 0), past("there", "here", 5, completed, 0)}, true},
		"it came anew, and left":                                     {"web-3-root.raw", "", []record.Report{past("there", "here", 5, completed, 0), left("web-5-root.raw", 6, 0)}, false},
		"it came, and left":                                          {"web-3-root.raw", "", []record.Report{past("there", "here", 3, completed, time.Hour), left("web-3-root.raw", 4, 0)}, true},
		"it left by a clock that was ahead, and came anew":           {"web-3-root.raw", "", []record.Report{past("there", "here", 3, completed, 2*time.Hour), left("web-3-root.raw", 4, -72*time.Hour), past("there", "here", 3, completed, time.Hour)}, false},
		"it came anew by a clock that was behind":                    {"web-3-root.raw", "", []record.Report{past("there", "here", 3, completed, time.Hour), left("web-3-root.raw", 4, 0), past("there", "here", 3, completed, 50*365*24*time.Hour)}, false},
		"it did not come by a clock that was ahead, and came later":  {"web-3-root.raw", "", []record.Report{{ID: "m-00000001", Guest: "web", Epoch: 3, From: "there", To: "here", Outcome: aborted, Ended: time.Now().Add(72 * time.Hour).UnixNano()}, past("there", "here", 3, completed, time.Hour)}, false},
		"the clock was set back as it left, and it was started anew": {"web-1-root.raw", "", []record.Report{setBack(left("web-1-root.raw", 2, time.Minute))}, false},
		"it was set back as it left":                                 {"web-1-root.raw", "", []record.Report{setBack(left("web-1-root.raw", 2, -time.Minute))}, true},
		"it was set on as it left, and right again":                  {"web-1-root.raw", "", []record.Report{setOn(left("web-1-root.raw", 2, time.Hour))}, false}, // and it was started anew
		"it was left there":                                          {"web-3-root.raw", "", []record.Report{{ID: "m-00000001", Guest: "web", Epoch: 4, From: "there", To: "here", Outcome: completed, Ended: time.Now().UnixNano(), Left: []string{"web-3-root.raw"}}}, false},
		"another time it did not come":                               {"web-3-root.raw", "", []record.Report{past("there", "here", 4, aborted, 0)}, false},
		"it did not come":                                            {"web-3-root.raw", "", []record.Report{past("there", "here", 3, aborted, 0)}, true},
		"it was given up":                                            {"web-3-root.m-0000000a.raw", "", []record.Report{left("web-3-root.m-0000000a.raw", 4, 0)}, false},
		"it was there before another":                                {"web-3-root.before.m-0000000a.raw", "", []record.Report{left("web-3-root.before.m-0000000a.raw", 4, 0)}, false},
		"it was given up, a guest of its name":                       {"web-2-root.m-0000000a.raw", "web-2", nil, false},
		"another guest's, of a longer name":                          {"web-2-a-b.raw", "web-2", nil, false},
		"two guests may have it":                                     {"web-2-a-3-b.raw", "web", []record.Report{left("web-2-a-3-b.raw", 4, 0)}, false},
		"no disk of ours":                                            {"web-2-root.qcow2", "web", []record.Report{left("web-2-root.qcow2", 4, 0)}, false},
	} {
		for kept, put := range map[string]func(i int, rep record.Report) (whole, short bool){
			"whole":         func(int, record.Report) (bool, bool) { return true, false },
			"in short":      func(int, record.Report) (bool, bool) { return false, true },
			"some in short": func(i int, _ record.Report) (bool, bool) { return i%2 == 0, i%2 > 0 },
			"put away, and those that left there still": func(_ int, rep record.Report) (bool, bool) { return len(rep.Left) > 0, true },
		} {
			t.Run(name+", "+kept, func(t *testing.T) {
				state := t.TempDir()
				keepHistory(t, state, c.history, put)
				disk := filepath.Join(state, "disks", c.file)
				write(t, disk, nil)
				if err := os.Chtimes(disk, begun, begun); err != nil { // what was so long ago is, however late its case comes
					t.Fatal(err)
				}
				o := &owners{held: map[string]care.Held{}}
				if c.held != "" {
					o.held[c.held] = care.Held{Epoch: 5, Description: config.Description{Name: c.held, Disks: []vm.Disk{{ID: "root"}}}}
				}
				if why := o.stale(&config.Config{Host: "here", State: state}, entryOf(t, disk)); (why != "") != c.stale {
					t.Errorf("left over: %q, want %v", why, c.stale)
				}
			})
		}
	}
}

// keepHistory writes what put says of each report, as record.Store does.
func keepHistory(t *testing.T, state string, history []record.Report, put func(int, record.Report) (whole, short bool)) {
	t.Helper()
	older := map[string]record.Report{}
	for i, rep := range history {
		name := fmt.Sprintf("m-%08x.json", i)
		whole, short := put(i, rep)
		if whole {
			write(t, filepath.Join(state, "history", name), jsonOf(t, rep))
		}
		if short {
			older[name] = rep
		}
	}
	write(t, filepath.Join(state, "history-old", "00.json"), jsonOf(t, older))
}

func jsonOf(t *testing.T, value any) []byte {
	t.Helper()
	data, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func entryOf(t *testing.T, path string) fs.DirEntry {
	t.Helper()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	return fs.FileInfoToDirEntry(info)
}

// TestReportThatCannotBeRead: it may be of a later stay of the guest, and so proves nothing of any disk.
func TestReportThatCannotBeRead(t *testing.T) {
	for _, damaged := range []string{"history/m-0000000f.json", "history-old/0f.json"} {
		c := &config.Config{Host: "here", State: t.TempDir()}
		write(t, filepath.Join(c.State, "history", "m-00000001.json"), jsonOf(t, left("web-3-root.raw", 4, 0)))
		write(t, filepath.Join(c.State, "disks", "web-3-root.raw"), nil)
		disk := entryOf(t, filepath.Join(c.State, "disks", "web-3-root.raw"))
		if (&owners{}).stale(c, disk) == "" {
			t.Error("its guest left it")
		}
		write(t, filepath.Join(c.State, damaged), []byte(`{"m-`))
		o := &owners{}
		for range 2 { // the second time it is known
			if o.stale(c, disk) != "" {
				t.Errorf("it is called left over, though %s cannot be read", damaged)
			}
		}
		write(t, filepath.Join(c.State, "disks", "web-3-root.m-0000000a.raw"), nil) // whatever the history says
		things, err := disks(t.Context(), c, &owners{})
		if err != nil || len(things) != 2 {
			t.Fatalf("%+v, %v", things, err)
		}
		for _, thing := range things {
			if want := !isAside(filepath.Base(thing.Name)); strings.Contains(thing.Stays, filepath.Join(c.State, damaged)) != want {
				t.Errorf("%s stays, as %q; %s cannot be read", thing.Name, thing.Stays, damaged)
			}
		}
	}
}

// TestHistoryIsReadOnce: what years of moves have left is looked at once, whatever disks there are, and not at all
// where each has its owner.
func TestHistoryIsReadOnce(t *testing.T) {
	c := &config.Config{Host: "here", State: t.TempDir()}
	for i, file := range []string{"web-3-root.raw", "web-3-data.raw"} {
		rep := left("web-3-root.raw", 4, 0)
		rep.Left = append(rep.Left, "web-3-data.raw")
		data, err := json.Marshal(rep)
		if err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(c.State, "history", string(rune('a'+i))+".json"), data)
		write(t, filepath.Join(c.State, "disks", file), nil)
	}
	owned := &owners{disks: map[string]string{}}
	for _, file := range []string{"web-3-root.raw", "web-3-data.raw"} {
		owned.disks[filepath.Join(c.State, "disks", file)] = "guest web"
	}
	if things, err := disks(t.Context(), c, owned); err != nil || len(things) != 2 || things[0].Owner != "guest web" || owned.history != nil {
		t.Errorf("%+v, %v; history %v", things, err, owned.history)
	}
	o := &owners{}
	for _, file := range []string{"web-3-root.raw", "web-3-data.raw"} {
		info, err := os.Stat(filepath.Join(c.State, "disks", file))
		if err != nil {
			t.Fatal(err)
		}
		if o.stale(c, fs.FileInfoToDirEntry(info)) == "" {
			t.Errorf("%s: its guest left it, and the history was read", file)
		}
		if err := os.RemoveAll(filepath.Join(c.State, "history")); err != nil {
			t.Fatal(err)
		}
	}
}

func write(t *testing.T, path string, data []byte) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestGuestOf(t *testing.T) {
	for dir, want := range map[string]string{"web-3": "web", "my-web-12": "my-web", "web-2-3": "web-2", "a.b-1": "a.b", "web": "web", "my-web": "my-web"} {
		if got := guestOf(dir); got != want {
			t.Errorf("%s is of guest %q", dir, got)
		}
	}
}

func TestDiskOf(t *testing.T) {
	for file, want := range map[string]struct {
		guest string
		epoch uint64
	}{
		"web-3-disk0.raw": {"web", 3}, "my-web-12-disk0.raw": {"my-web", 12}, "a.b-1-root.raw": {"a.b", 1},
		"web-2-3-root.raw": {"web-2", 3}, "web-2-a-b.raw": {"web", 2},
		"web-2-root.m-0000000a.raw": {"web", 2}, "web-2-root.before.m-0000000a.raw": {"web", 2},
		"web-2-m-0000000a.raw": {"web", 2}, // a disk of that id
		"web-2-a-3-b.raw":      {"", 0},    // web's disk a-3-b, or web-2-a's disk b
		"web-2.raw":            {"", 0}, "root.raw": {"", 0}, "web-2-root.qcow2": {"", 0},
	} {
		if guest, epoch := diskOf(file); guest != want.guest || epoch != want.epoch {
			t.Errorf("%s is of guest %q, epoch %d", file, guest, epoch)
		}
	}
}

// TestGuestsThatCannotBeListed: where it is not known which guests there are, as on storage that fails, nothing is
// called left over.
func TestGuestsThatCannotBeListed(t *testing.T) {
	c := &config.Config{Host: "here", State: t.TempDir(), Run: t.TempDir()}
	write(t, filepath.Join(c.State, "guests"), nil) // a file where their directory should be
	if things, err := Find(t.Context(), c); err == nil {
		t.Errorf("found %v, and no error", things)
	}
}
