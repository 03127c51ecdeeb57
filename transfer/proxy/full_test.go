package proxy

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"godwit/transfer/pages"
)

// fullFile is a file that takes nothing.
type fullFile struct {
	pages.Spill
	err error
}

func (f fullFile) WriteAt([]byte, int64) (int, error) {
	return 0, &fs.PathError{Op: "write", Path: "/var/lib/godwit/(unnamed)", Err: f.err}
}

// TestFullDiskSaysWhatToDo: where what waits to be sent finds no room on disk, it is said which one, and what helps.
func TestFullDiskSaysWhatToDo(t *testing.T) {
	for err, cure := range map[error]bool{unix.ENOSPC: true, unix.EDQUOT: true, unix.EIO: false} {
		store := pages.New(10, pages.NewArena(pages.Size, func(n int) ([]byte, error) { return make([]byte, n), nil }, queueFile{fullFile{err: err}}))
		store.End()
		var got error
		for n := uint64(0); n < 10 && got == nil; n++ {
			got = store.Put(n, bytes.Repeat([]byte{1}, pages.Size))
		}
		_, later := store.Take(64) // whoever sends may be the first to tell it
		for _, got := range []error{got, later} {
			if !errors.Is(got, err) {
				t.Errorf("%v: %v", err, got)
			}
			if text := fmt.Sprint(got); !strings.Contains(text, "/var/lib/godwit") || strings.Contains(text, "--buffer") != cure {
				t.Errorf("%v: %s", err, text)
			}
		}
	}
}
