// Package owed tells subnet agents what became of guests whose addresses they gave back, until they answer.
//
// A subnet agent that does not answer when it is told is told later: until then it leads the guest's packets where the
// guest is not. What it is owed is on disk, for the agents to come: a file for each subnet agent and guest,
// DIR/GUEST@HOST.json, with the last word about that guest alone.
package owed

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"godwit/agent/config"
	"godwit/agent/detour"
	"godwit/agent/statefile"
	"godwit/internal/clock"
	"godwit/migration"
)

// Word is the last word to a subnet agent about a guest.
type Word struct {
	Host string          `json:"host"`
	Ask  detour.GiveBack `json:"ask"`
}

func (w Word) equal(o Word) bool {
	return w.Host == o.Host && w.Ask.Guest == o.Ask.Guest && w.Ask.Move == o.Ask.Move && w.Ask.Step == o.Ask.Step && slices.Equal(w.Ask.Addresses, o.Ask.Addresses)
}

// Words are those that were not answered yet, one for each subnet agent and guest, in files. What is exported is set
// before the first call.
type Words struct {
	Ctx context.Context // ends askers; what they had left is told by the next agent
	Dir string
	Ask func(ctx context.Context, host string, ask detour.GiveBack) error
	Go  func(func()) // runs an asker
	Log func(msg string, args ...any)

	mu sync.Mutex
	by map[string]Word // by file
}

const (
	// askEvery is how often it is tried to tell at first; each try that is not answered makes it twice as long,
	askEvery = 2 * time.Second
	// up to this.
	askRarely = 30 * time.Second
	// askRefused is for how long a word is repeated that is answered, and refused.
	askRefused = config.DefaultLease
)

func (o *Words) path(host, guest string) string {
	return filepath.Join(o.Dir, guest+"@"+host+".json")
}

// Owe tells a subnet agent, beside everything else, for as long as that takes. An older word about the guest is not
// told any more.
func (o *Words) Owe(w Word) {
	path := o.path(w.Host, w.Ask.Guest)
	o.mu.Lock()
	defer o.mu.Unlock()
	if err := errors.Join(os.MkdirAll(o.Dir, 0o700), statefile.Write(path, w)); err != nil {
		o.Log("a word to a subnet agent could not be kept", "host", w.Host, "guest", w.Ask.Guest, "error", err)
	}
	o.begin(path, w)
}

// begin has a word told; the caller holds mu.
func (o *Words) begin(path string, w Word) {
	_, asking := o.by[path]
	if o.by == nil {
		o.by = map[string]Word{}
	}
	if o.by[path] = w; !asking {
		o.Go(func() { o.tell(path) })
	}
}

// tell tells what is owed last, until it is heard.
func (o *Words) tell(path string) {
	var told Word
	since, wait := time.Now(), askEvery
	for {
		o.mu.Lock()
		w, owed := o.by[path]
		o.mu.Unlock()
		if !owed {
			return
		}
		if !w.equal(told) {
			told, since, wait = w, time.Now(), askEvery
		}
		err := o.Ask(o.Ctx, w.Host, w.Ask)
		var refused *migration.Problem
		if err == nil || errors.As(err, &refused) && time.Since(since) > askRefused {
			if o.settle(path, w) {
				return
			}
			continue
		}
		o.Log("tell a subnet agent again", "host", w.Host, "guest", w.Ask.Guest, "step", w.Ask.Step, "error", err)
		if !clock.Sleep(o.Ctx, wait) {
			return
		}
		wait = min(2*wait, askRarely)
	}
}

// settle forgets a word, and says whether there is no later one.
func (o *Words) settle(path string, w Word) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if last, owed := o.by[path]; owed && !last.equal(w) {
		return false
	}
	delete(o.by, path)
	if err := statefile.Remove(path); err != nil {
		o.Log("forget what a subnet agent was owed", "error", err)
	}
	return true
}

// Forget is before the subnet agent is asked for the guest anew: what it was owed is out of date.
func (o *Words) Forget(host, guest string) {
	path := o.path(host, guest)
	o.mu.Lock()
	w, owed := o.by[path]
	o.mu.Unlock()
	if owed {
		o.settle(path, w)
	}
}

// Resume goes on telling what an earlier agent could not tell.
func (o *Words) Resume() {
	paths, err := statefile.Files(o.Dir)
	if err != nil {
		o.Log("words to subnet agents", "error", err)
	}
	for _, path := range paths {
		var w Word
		if err := statefile.Read(path, &w); err != nil || path != o.path(w.Host, w.Ask.Guest) {
			o.Log("a word to a subnet agent cannot be read", "file", path, "error", err)
			continue
		}
		o.mu.Lock()
		o.begin(path, w)
		o.mu.Unlock()
	}
}
