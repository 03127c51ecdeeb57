package visit

import (
	"crypto/cipher"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"

	"godwit/transfer/pages"
)

// Writer is a sealed file that has no name yet. It is for one goroutine.
type Writer struct {
	file *os.File
	dir  string
	temp string // its name where the file system has no files without one

	seal   cipher.AEAD
	number uint64 // of the last page that was sealed
	table  []byte // of the group that was written last
	group  uint64
	dirty  bool   // table is not in the file
	run    []byte // pages of that group, sealed, that follow one another and are not in the file
	first  uint64 // of run
}

// Create begins a file in dir, which it makes.
func Create(dir string, key Key) (*Writer, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("keep memory: %w", err)
	}
	head, seal, err := key.newHead()
	if err != nil {
		return nil, fmt.Errorf("keep memory: %w", err)
	}
	w := &Writer{dir: dir, seal: seal, table: make([]byte, pages.Size), run: make([]byte, 0, runPages*pages.Size+tagSize)}
	fd, err := unix.Open(dir, unix.O_TMPFILE|unix.O_RDWR|unix.O_CLOEXEC, 0o600)
	if err == nil {
		w.file = os.NewFile(uintptr(fd), dir+"/(unnamed)")
	} else {
		if w.file, err = os.CreateTemp(dir, ".tmp-"); err != nil {
			return nil, fmt.Errorf("keep memory: %w", err)
		}
		w.temp = w.file.Name()
	}
	if _, err := w.file.WriteAt(head, 0); err != nil {
		return nil, errors.Join(fmt.Errorf("keep memory: %w", err), w.Close())
	}
	return w, nil
}

// runPages is how many pages are written to the file at once: one by one they cost twice as much.
const runPages = 64

// maxPages bounds a guest: 4 PiB.
const maxPages = 1 << 40

// Write stores a page; an older version of it goes.
func (w *Writer) Write(page uint64, data []byte) error {
	if page >= maxPages {
		return fmt.Errorf("keep memory: page %d", page)
	}
	if err := w.turnTo(page / groupPages); err != nil {
		return fmt.Errorf("keep memory: %w", err)
	}
	if at := len(w.run); at == runPages*pages.Size || page != w.first+uint64(at/pages.Size) { //nolint:gosec // not negative
		if err := w.flushRun(); err != nil {
			return fmt.Errorf("keep memory: %w", err)
		}
		w.first = page
	}
	w.number++
	nonce, about := nonceFor(w.number, page)
	sealed := w.seal.Seal(w.run, nonce[:], data[:pages.Size], about[:])
	w.run = sealed[:len(w.run)+pages.Size]
	e := entryOf(w.table, page)
	binary.BigEndian.PutUint64(e, w.number)
	copy(e.tag(), sealed[len(w.run):])
	w.dirty = true
	return nil
}

// turnTo makes table that of a group.
func (w *Writer) turnTo(group uint64) error {
	if group == w.group && w.number > 0 {
		return nil
	}
	if err := w.flush(); err != nil {
		return err
	}
	w.group = group
	clear(w.table)
	if _, err := w.file.ReadAt(w.table, tableAt(group*groupPages)); err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	return nil
}

func (w *Writer) flush() error {
	if !w.dirty {
		return nil
	}
	if err := w.flushRun(); err != nil {
		return err
	}
	w.dirty = false
	_, err := w.file.WriteAt(w.table, tableAt(w.group*groupPages))
	return err
}

func (w *Writer) flushRun() error {
	if len(w.run) == 0 {
		return nil
	}
	_, err := w.file.WriteAt(w.run, pageAt(w.first))
	w.run = w.run[:0]
	return err
}

// Name gives the file its name in its directory, over one that has it, and closes it.
func (w *Writer) Name(name string) error {
	if err := w.flush(); err != nil {
		return errors.Join(fmt.Errorf("keep memory: %w", err), w.Close())
	}
	if w.temp == "" {
		temp := filepath.Join(w.dir, ".tmp-"+name)
		if err := os.Remove(temp); err != nil && !errors.Is(err, os.ErrNotExist) {
			return errors.Join(fmt.Errorf("keep memory: %w", err), w.Close())
		}
		from := "/proc/self/fd/" + strconv.Itoa(int(w.file.Fd()))
		if err := unix.Linkat(unix.AT_FDCWD, from, unix.AT_FDCWD, temp, unix.AT_SYMLINK_FOLLOW); err != nil {
			return errors.Join(fmt.Errorf("keep memory: %w", err), w.Close())
		}
		w.temp = temp
	}
	if err := os.Rename(w.temp, filepath.Join(w.dir, name)); err != nil {
		return errors.Join(fmt.Errorf("keep memory: %w", err), w.Close())
	}
	w.temp = ""
	return w.Close()
}

// Close gives the file up, unless it has its name. It may be called again.
func (w *Writer) Close() error {
	err := w.file.Close()
	if errors.Is(err, os.ErrClosed) {
		return nil
	}
	if w.temp != "" {
		err = errors.Join(err, os.Remove(w.temp))
	}
	return err
}
