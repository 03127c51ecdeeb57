package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"godwit/agent/config"
)

// directories looks at those in which an agent keeps what it knows.
func directories(c *config.Config) []finding {
	state := directory("state", c.State)
	if state.OK && !state.Note && inMemory(c.State) {
		state = note(state.What, c.State+": it is in memory, and what the agent must know after a reboot is gone with that; name one on a disk by state")
	}
	return []finding{state, directory("run", c.Run)}
}

// directory says whether an agent can make files in the directory that a key of the configuration names and has room
// there, or can make that.
func directory(key, path string) finding {
	at, well := path, ""
	info, err := os.Stat(at)
	for errors.Is(err, fs.ErrNotExist) && at != "/" {
		if to, is := os.Readlink(at); is == nil { // as to a volume that is not mounted: nothing is made by that name
			return lack(key, fmt.Sprintf("%s leads to %s, which is not there; mount or make that, or name a directory that can be written by %s", at, to, key))
		}
		at, well = filepath.Dir(at), ": it is made when the agent starts"
		info, err = os.Stat(at)
	}
	if err == nil && !info.IsDir() {
		err = &fs.PathError{Op: "look", Path: at, Err: unix.ENOTDIR}
	}
	if err != nil {
		return lack(key, err.Error()+"; name a directory that can be written by "+key)
	}
	switch why := config.Unwritable(at); {
	case geteuid() != 0 && unix.Access(at, unix.R_OK|unix.W_OK|unix.X_OK) != nil:
		return note(key, "not looked at: only root can")
	case why != "":
		return lack(key, at+": "+why)
	}
	return fine(key, path+well)
}

// inMemory says whether what is in a directory, which may be made yet, is gone with the host's power.
func inMemory(path string) bool {
	var on unix.Statfs_t
	err := unix.Statfs(path, &on)
	for errors.Is(err, fs.ErrNotExist) && path != "/" {
		path = filepath.Dir(path)
		err = unix.Statfs(path, &on)
	}
	return err == nil && (on.Type == unix.TMPFS_MAGIC || on.Type == unix.RAMFS_MAGIC)
}
