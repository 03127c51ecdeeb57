package leftover

import (
	"cmp"
	"context"
	"fmt"
	"path/filepath"

	"godwit/agent/config"
	"godwit/agent/statefile"
)

// untold is what matters here of a file of STATE/ended or STATE/taken: who has not heard it yet.
type untold struct {
	Detour    string `json:"detour"`
	Peer      string `json:"peer"`
	Migration string `json:"migration"`
	Host      string `json:"host"`
}

// untolds are words to hosts that the configuration does not name any more: no agent tells them. That a guest was taken
// back keeps a host that returns from running it a second time, so a person says that this one will not.
func untolds(_ context.Context, c *config.Config, _ *owners) (out []Thing, err error) {
	for _, kind := range []string{"ended", "taken"} {
		paths, err := statefile.Files(filepath.Join(c.State, kind))
		if err != nil {
			return nil, err
		}
		for _, path := range paths {
			var u untold
			if statefile.Read(path, &u) != nil {
				continue // it was heard just now, or an agent says that it cannot be read
			}
			host := cmp.Or(u.Peer, u.Host)
			if _, named := c.Peer(host); named || host == "" {
				continue
			}
			t := Thing{Kind: Untold, Name: fmt.Sprintf("%s for host %s, which peers do not name", path, host), Migration: u.Migration, remove: func(context.Context) error { return statefile.Remove(path) }}
			if kind == "taken" {
				t.Stays = "that its guest was taken back is not known there: name that host under peers again, or remove the file where it is gone for good"
			}
			out = append(out, t)
		}
	}
	return out, nil
}
