// Package archive writes initial file systems in the "newc" cpio format of the
// kernel's Documentation/driver-api/early-userspace/buffer-format.rst.
//
// The same content gives the same bytes: entries are sorted by path, every time is
// zero, every owner is root, inodes are numbered in order.
package archive

import (
	"fmt"
	"io"
	"path"
	"slices"
	"strings"
)

// An Entry is one file, folder, link or device. Its path has no leading slash.
type Entry struct {
	Path    string
	Mode    uint32 // permissions
	Content []byte // of a file
	Target  string // of a symbolic link, which this makes the entry
	Folder  bool
	Device  *Device
}

// Device is a character device's number.
type Device struct{ Major, Minor uint32 }

const (
	typeFile   = 0o100000
	typeFolder = 0o040000
	typeLink   = 0o120000
	typeDevice = 0o020000
)

// Write writes entries, and the folders that they are in, as one archive.
func Write(w io.Writer, entries []Entry) error {
	all, err := complete(entries)
	if err != nil {
		return err
	}
	for i, e := range all {
		if err := write(w, e, i+1); err != nil {
			return fmt.Errorf("write %s: %w", e.Path, err)
		}
	}
	return write(w, Entry{Path: "TRAILER!!!"}, 0)
}

// complete sorts the entries and adds missing folders.
func complete(entries []Entry) ([]Entry, error) {
	byPath := make(map[string]Entry)
	for _, e := range entries {
		if e.Path != path.Clean(e.Path) || strings.HasPrefix(e.Path, "/") || strings.HasPrefix(e.Path, "..") {
			return nil, fmt.Errorf("entry %q: not a clean relative path", e.Path)
		}
		if _, twice := byPath[e.Path]; twice {
			return nil, fmt.Errorf("entry %q: given twice", e.Path)
		}
		byPath[e.Path] = e
	}
	for _, e := range entries {
		for folder := path.Dir(e.Path); folder != "."; folder = path.Dir(folder) {
			if have, ok := byPath[folder]; ok && !have.Folder {
				return nil, fmt.Errorf("entry %q: %q is no folder", e.Path, folder)
			} else if !ok {
				byPath[folder] = Entry{Path: folder, Mode: 0o755, Folder: true}
			}
		}
	}
	all := make([]Entry, 0, len(byPath))
	for _, e := range byPath {
		all = append(all, e)
	}
	slices.SortFunc(all, func(a, b Entry) int { return strings.Compare(a.Path, b.Path) })
	return all, nil
}

func write(w io.Writer, e Entry, inode int) error {
	mode, content, links := e.Mode, e.Content, 1
	var device Device
	switch {
	case inode == 0:
	case e.Folder:
		mode, content, links = mode|typeFolder, nil, 2
	case e.Target != "":
		mode, content = 0o777|typeLink, []byte(e.Target)
	case e.Device != nil:
		mode, content, device = mode|typeDevice, nil, *e.Device
	default:
		mode |= typeFile
	}
	header := fmt.Sprintf("070701%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%s\x00",
		inode, mode, 0, 0, links, 0, len(content), 0, 0, device.Major, device.Minor, len(e.Path)+1, 0, e.Path)
	if _, err := io.WriteString(w, header+padding(len(header))); err != nil {
		return err
	}
	if _, err := w.Write(content); err != nil {
		return err
	}
	_, err := io.WriteString(w, padding(len(content)))
	return err
}

// padding fills n up to a multiple of four.
func padding(n int) string { return "\x00\x00\x00"[:(4-n%4)%4] }
