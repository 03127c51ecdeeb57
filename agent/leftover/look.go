package leftover

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"godwit/agent/config"
	"godwit/agent/statefile"
	"godwit/agent/uplinks"
	"godwit/agent/visits"
	"godwit/internal/clock"
	"godwit/netstate"
	"godwit/netstate/tunnel"
	"godwit/transfer/inlet"
	"godwit/vm"
	"godwit/vm/qemu"
)

const (
	sealedWords = "a journal, the file of a guest or of detours here cannot be read, and it may own this"
	endedWords  = "what a guest was that has ended here cannot be read, and this may be its disk"
)

// owned gives a thing its owner: a migration of its guest that is under way may own
// what no record names yet.
func (o *owners) owned(t Thing, owner string) Thing {
	t.Owner = owner
	if t.Owner == "" && t.Guest != "" {
		if id, ok := o.moving(t.Guest); ok {
			t.Owner = "migration " + id
		}
	}
	if t.Owner == "" && o.sealed && (t.Stays == "" || t.uncared) { // it may be a guest's that is well: nobody is to end that
		t.Stays, t.uncared = sealedWords, false
	}
	if t.Owner == "" && t.Stays == "" && t.Kind == Disk && o.endedUnread { // it has nothing else here
		t.Stays = endedWords
	}
	return t
}

// each makes things of what was found, with what owns it by a record; found is not looked at
// with an error.
func each[T any](o *owners, found []T, err error, thing func(T) (t Thing, owner string)) ([]Thing, error) {
	if err != nil {
		return nil, err
	}
	var out []Thing
	for _, f := range found {
		t, owner := thing(f)
		out = append(out, o.owned(t, owner))
	}
	return out, nil
}

// entries are what is in a directory, which need not be there.
func entries(dir string) ([]fs.DirEntry, error) {
	all, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return all, err
}

// kernel is the network state of guests.
func kernel(_ context.Context, _ *config.Config, o *owners) ([]Thing, error) {
	found, err := netstate.Found()
	if err != nil {
		return nil, err
	}
	var out []Thing
	for guest := range found.States {
		t := Thing{Kind: NetworkState, Name: guest, Guest: guest, remove: func(context.Context) error { return netstate.Clear(guest) }}
		owner := ""
		for _, d := range o.detours {
			if d.Guest == guest {
				owner, t.Migration = ownerOf(d), d.ID
			}
		}
		out = append(out, o.owned(t, owner))
	}
	for _, s := range found.Stray {
		t := Thing{Kind: Stray, Name: s, remove: func(context.Context) error { return netstate.RemoveStray(s) }}
		owner := ""
		if len(o.migrations) > 0 { // of a change that is being made, perhaps
			owner = "a migration under way"
		}
		out = append(out, o.owned(t, owner))
	}
	return out, nil
}

// taps are guests' taps.
func taps(_ context.Context, _ *config.Config, o *owners) ([]Thing, error) {
	found, err := netstate.Taps()
	return each(o, found, err, func(tap netstate.TapFound) (Thing, string) {
		t := Thing{Kind: Tap, Name: tap.Name, remove: func(context.Context) error { return netstate.RemoveTap(tap.Name) }}
		owner := o.taps[tap.Name]
		if owner == "" && len(o.migrations) > 0 && tap.QEMU == 0 {
			owner = "a migration under way"
		}
		if owner == "" && tap.QEMU != 0 {
			t.Stays = fmt.Sprintf("QEMU %d has it open", tap.QEMU)
		}
		return t, owner
	})
}

// tunnels are their devices, processes and files, also of processes whose directory
// was taken away from under them.
func tunnels(ctx context.Context, c *config.Config, o *owners) ([]Thing, error) {
	dir := filepath.Join(c.Run, "tunnels")
	found, err := tunnel.Found(ctx, dir)
	if err != nil {
		return nil, err
	}
	astray, err := tunnel.Astray()
	if err != nil {
		return nil, err
	}
	var out []Thing
	seen := map[string]bool{}
	for _, s := range append(found, astray...) {
		if seen[s.Name] {
			continue
		}
		seen[s.Name] = true
		t := Thing{Kind: Tunnel, Name: s.Name}
		_, suffix, _ := strings.Cut(s.Name, "-")
		t.remove = func(ctx context.Context) error {
			return errors.Join(tunnel.Down(ctx, dir, s.Name), tunnel.EndAstray(ctx, s.Name))
		}
		owner := ""
		if d, ok := o.tunnels[s.Name]; ok {
			if t.Guest, t.Migration = d.Guest, d.ID; !s.Over(clock.Now()) { // else an agent that starts makes it again, if it is to stand
				owner = ownerOf(d)
			}
		} else if id, ok := o.ofMigration(suffix); ok {
			t.Guest, t.Migration, owner = o.migrations[id].plan().Guest, id, "migration "+id
		} else {
			t.Migration = "m-" + suffix
		}
		out = append(out, o.owned(t, owner))
	}
	return out, nil
}

// inlets are processes that bring guests the pages which they miss. One whose QEMU lives is
// left alone without a migration too: the guest may wait for pages of it.
func inlets(ctx context.Context, c *config.Config, o *owners) ([]Thing, error) {
	root := filepath.Join(c.Run, "guests")
	found, err := inlet.Found(root)
	if err != nil {
		return nil, err
	}
	alive, err := qemu.Living(root)
	if err != nil {
		return nil, err
	}
	return each(o, found, nil, func(p inlet.Process) (Thing, string) {
		dir := filepath.Dir(p.Socket)
		t := Thing{Kind: Inlet, Name: fmt.Sprintf("process %d at %s", p.PID, p.Socket), Guest: guestOf(filepath.Base(dir))}
		t.remove = func(ctx context.Context) error { return inlet.End(ctx, p) }
		owner, of := "", o.ofDir(dir)
		switch {
		case strings.HasPrefix(of, migrationOwner), alive[dir] != 0 && of != "":
			owner = of
		case alive[dir] != 0:
			lives := withoutCare(ctx, Thing{}, dir, alive[dir])
			t.Stays, t.uncared = lives.Stays, lives.uncared
		}
		return t, owner
	})
}

// directories are guests' runtime directories.
func directories(ctx context.Context, c *config.Config, o *owners) ([]Thing, error) {
	root := filepath.Join(c.Run, "guests")
	alive, err := qemu.Living(root)
	if err != nil {
		return nil, err
	}
	found, err := entries(root)
	found = slices.DeleteFunc(found, func(e fs.DirEntry) bool { return !e.IsDir() }) // STATE/guests has files, where both are one directory
	return each(o, found, err, func(e fs.DirEntry) (Thing, string) {
		dir := filepath.Join(root, e.Name())
		t := Thing{Kind: Guest, Name: dir, Guest: guestOf(e.Name()), remove: func(context.Context) error { return os.RemoveAll(dir) }}
		owner := o.ofDir(dir)
		if owner == "" && (alive[dir] != 0 || answers(ctx, filepath.Join(dir, "qmp.sock"))) {
			t = withoutCare(ctx, t, dir, alive[dir])
		}
		return t, owner
	})
}

// withoutCare is a QEMU that nobody has under care. Only one that waits, and so never
// ran its guest, is ended.
func withoutCare(ctx context.Context, t Thing, dir string, pid int) Thing {
	t.uncared = true
	which := "its QEMU"
	if pid != 0 { // else it is seen by its socket alone
		which = fmt.Sprintf("its QEMU %d", pid)
	}
	t.Stays = which + " lives and may run the guest: adopt it (`godwit guest adopt`), or end it yourself"
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	look, err := qemu.Look(ctx, dir)
	if err != nil {
		return t
	}
	defer look.Close()
	if status, err := look.Status(ctx); err != nil || status != vm.Incoming {
		return t
	}
	t.Stays, t.uncared = "", false
	t.remove = func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
		defer cancel()
		p, err := qemu.Attach(ctx, dir)
		if err != nil {
			return err
		}
		defer p.Close()
		switch status, err := p.Status(ctx); {
		case err != nil:
			return err
		case status != vm.Incoming:
			return fmt.Errorf("its QEMU does not wait any more: it is %s now", status)
		}
		return errors.Join(p.Quit(ctx), os.RemoveAll(dir))
	}
	return t
}

// answers says whether somebody listens on a socket, or may: others may wait before it, or nothing be left to dial by.
func answers(ctx context.Context, path string) bool {
	if _, err := os.Lstat(path); errors.Is(err, fs.ErrNotExist) {
		return false
	}
	conn, err := (&net.Dialer{Timeout: time.Second}).DialContext(ctx, "unix", path)
	if err != nil {
		return !errors.Is(err, unix.ECONNREFUSED) && !errors.Is(err, fs.ErrNotExist)
	}
	conn.Close()
	return true
}

// disks are files of disks that came here.
func disks(_ context.Context, c *config.Config, o *owners) ([]Thing, error) {
	dir := filepath.Join(c.State, "disks")
	found, err := entries(dir)
	if err != nil || len(found) == 0 {
		return nil, err
	}
	users, err := openFiles(dir)
	return each(o, found, err, func(e fs.DirEntry) (Thing, string) {
		path := filepath.Join(dir, e.Name())
		guest, _ := diskOf(e.Name())
		t := Thing{Kind: Disk, Name: path, Guest: guest, remove: func(context.Context) error { return os.Remove(path) }}
		owner := o.disks[path]
		switch pid := users[path]; {
		case owner != "":
		case pid != 0:
			t.Stays = fmt.Sprintf("process %d has it open", pid)
		default:
			if t.Migration = o.stale(c, e); t.Migration == "" {
				t.Stays = "it may be the only copy: nothing here proves that its guest has another; remove it when you know"
				if o.unread != nil && !isAside(e.Name()) {
					t.Stays = "it may be the only copy, and whether its guest left it is not known: " + o.unread.Error()
				}
			}
		}
		return t, owner
	})
}

// openFiles are the files below dir that a process has open, with one such process. The kernel names them by where dir
// leads, if it is a link, or below one.
func openFiles(dir string) (map[string]int, error) {
	at, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return nil, err
	}
	links, err := filepath.Glob("/proc/[0-9]*/fd/*")
	if err != nil {
		return nil, err
	}
	users := map[string]int{}
	for _, l := range links {
		path, err := os.Readlink(l)
		name, below := strings.CutPrefix(path, at+"/")
		if err != nil || !below {
			continue
		}
		var pid int
		if _, err := fmt.Sscanf(l, "/proc/%d/", &pid); err == nil {
			users[filepath.Join(dir, name)] = pid
		}
	}
	return users, nil
}

// memory is what is kept of guests that left, as long as its lease lasts.
func memory(_ context.Context, c *config.Config, _ *owners) ([]Thing, error) {
	kept, err := visits.All(c)
	if err != nil {
		return nil, err
	}
	var out []Thing
	for _, v := range kept {
		t := Thing{Kind: Memory, Name: v.Path, Guest: v.Guest, remove: func(context.Context) error { return os.Remove(v.Path) }}
		if clock.Now().Before(v.Until) {
			t.Owner = "a lease until " + v.Until.Format(time.DateTime)
		}
		out = append(out, t)
	}
	return out, nil
}

// multipath is what the host's MPTCP was told for migrations: the agent that starts after one that was killed takes it back.
func multipath(_ context.Context, c *config.Config, o *owners) ([]Thing, error) {
	e := &uplinks.Endpoints{Kept: uplinks.KeptIn(c.Run)}
	left, err := e.Left()
	if err != nil || len(left) == 0 {
		return nil, err
	}
	owner := ""
	if len(o.migrations) > 0 {
		owner = "a migration under way"
	}
	t := Thing{Kind: Multipath, Name: strings.Join(left, "; "), remove: func(context.Context) error { return e.Sweep() }}
	return []Thing{o.owned(t, owner)}, nil
}

// halfWritten are files that a crash left before they got their name.
func halfWritten(_ context.Context, c *config.Config, _ *owners) ([]Thing, error) {
	var out []Thing
	paths := slices.Concat(statefile.Half(c.State), statefile.Half(c.Run))
	slices.Sort(paths)
	for _, p := range slices.Compact(paths) { // one may lie in the other
		if info, err := os.Stat(p); err != nil || time.Since(info.ModTime()).Abs() < time.Minute { // a clock that was set back makes them of a time to come
			continue // being written
		}
		out = append(out, Thing{Kind: File, Name: p, remove: func(context.Context) error { return os.Remove(p) }})
	}
	return out, nil
}
