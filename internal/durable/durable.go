// Package durable is files that a host has which loses its power.
package durable

import (
	"errors"
	"os"
	"path/filepath"
)

// Half begins the names of files that are not written yet, or never will be: of who was killed as it wrote them.
const Half = ".tmp-"

// WriteFile replaces path by data. On error the file is as it was, or the new one where only its directory was not
// synced.
func WriteFile(path string, data []byte) error {
	tmp, err := os.CreateTemp(filepath.Dir(path), Half+"*")
	if err != nil {
		return err
	}
	_, err = tmp.Write(data)
	err = errors.Join(err, tmp.Sync(), tmp.Close())
	if err == nil {
		err = os.Rename(tmp.Name(), path)
	}
	if err != nil {
		os.Remove(tmp.Name()) //nolint:errcheck // who sweeps does it else
		return err
	}
	return SyncDir(filepath.Dir(path))
}

// SyncDir makes what was created, renamed or removed in dir last.
func SyncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
