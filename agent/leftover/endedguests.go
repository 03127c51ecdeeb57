package leftover

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"time"

	"godwit/agent/care"
	"godwit/agent/config"
	"godwit/agent/statefile"
)

// endedGuests are those of whom is kept what they are started again by: nobody but a person knows that none is to be.
func endedGuests(_ context.Context, c *config.Config, _ *owners) (out []Thing, err error) {
	paths, err := statefile.Files(filepath.Join(c.State, care.EndedFolder))
	for _, path := range paths {
		t := Thing{Kind: Ended, Name: path}
		switch e, err := readEnded(path); {
		case errors.Is(err, fs.ErrNotExist):
			continue // it is under care again just now
		case err != nil:
			t.Stays = fmt.Sprintf("cannot be read (%v), and its guest is not started again by it", err)
		default:
			t.Guest = e.Held.Description.Name
			t.Stays = fmt.Sprintf("it ended here at %s; `godwit guest start %s` starts it again, and where nobody is to, remove this file", e.At.UTC().Format(time.DateTime+" MST"), t.Guest)
		}
		out = append(out, t)
	}
	return out, err
}

func readEnded(path string) (e care.Ended, err error) {
	err = statefile.Read(path, &e)
	return e, err
}

// readEnded notes what guests that have ended here left, for a start of them: nobody removes that by what history says.
func (o *owners) readEnded(dir string) error {
	paths, err := statefile.Files(dir)
	for _, path := range paths {
		e, err := readEnded(path)
		if err != nil {
			continue // endedGuests says so
		}
		for _, d := range e.Held.Description.Disks {
			if o.disks[d.Path] == "" {
				o.disks[d.Path] = "guest " + e.Held.Description.Name + ", which has ended"
			}
		}
	}
	return err
}
