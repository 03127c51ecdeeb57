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

// endedGuests are files of what guests were that have ended here: only a person knows that nobody needs one any more.
func endedGuests(_ context.Context, c *config.Config, _ *owners) (out []Thing, err error) {
	paths, err := statefile.Files(filepath.Join(c.State, care.EndedFolder))
	for _, path := range paths {
		var e care.Ended
		t := Thing{Kind: Ended, Name: path}
		switch err := statefile.Read(path, &e); {
		case errors.Is(err, fs.ErrNotExist):
			continue // it is under care again just now
		case err != nil:
			t.Stays = fmt.Sprintf("what its guest was is not known: %v", err)
		default:
			t.Guest = e.Description.Name
			t.Stays = fmt.Sprintf("it ended here at %s, %sand no agent starts it again; `godwit guest describe --ended %s` says what it was, `godwit guest forget %[3]s` removes this",
				e.At.UTC().Format(time.DateTime+" MST"), elsewhere(e), t.Guest)
		}
		out = append(out, t)
	}
	return out, err
}

// elsewhere says before what follows who may have the guest.
func elsewhere(e care.Ended) string {
	if who := e.Elsewhere(); who != "" {
		return who + ", "
	}
	return ""
}
