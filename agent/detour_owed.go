package agent

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"godwit/agent/config"
	"godwit/agent/statefile"
	"godwit/migration"
)

// A subnet agent that does not answer when it is told what became of a guest is told later: until then it leads the
// guest's packets where the guest is not. What it is owed is on disk, for the agents to come.

// owedWord is the last word to a subnet agent about a guest.
type owedWord struct {
	Host string   `json:"host"`
	Ask  GiveBack `json:"ask"`
}

func (w owedWord) equal(o owedWord) bool {
	return w.Host == o.Host && w.Ask.Guest == o.Ask.Guest && w.Ask.Move == o.Ask.Move && w.Ask.Step == o.Ask.Step && slices.Equal(w.Ask.Addresses, o.Ask.Addresses)
}

// owedWords are those that were not answered yet, one for each subnet agent and guest, in files.
type owedWords struct {
	ctx context.Context // the agent's
	dir string
	ask func(context.Context, string, GiveBack) error
	on  func(func()) // runs an asker
	log func(msg string, args ...any)

	mu sync.Mutex
	by map[string]owedWord // by file
}

const (
	// owedEvery is how often it is tried to tell at first; each try that is not answered makes it twice as long,
	owedEvery = 2 * time.Second
	// up to this.
	owedRarely = 30 * time.Second
	// owedRefused is for how long a word is repeated that is answered, and refused.
	owedRefused = config.DefaultLease
)

func (o *owedWords) path(host, guest string) string {
	return filepath.Join(o.dir, guest+"@"+host+".json")
}

// owe tells a subnet agent, beside everything else, for as long as that takes. An older word about the guest is not told any more.
func (o *owedWords) owe(w owedWord) {
	path := o.path(w.Host, w.Ask.Guest)
	o.mu.Lock()
	defer o.mu.Unlock()
	if err := errors.Join(os.MkdirAll(o.dir, 0o700), statefile.Write(path, w)); err != nil {
		o.log("a word to a subnet agent could not be kept", "host", w.Host, "guest", w.Ask.Guest, "error", err)
	}
	o.begin(path, w)
}

// begin has a word told; the caller holds mu.
func (o *owedWords) begin(path string, w owedWord) {
	_, asking := o.by[path]
	if o.by == nil {
		o.by = map[string]owedWord{}
	}
	if o.by[path] = w; !asking {
		o.on(func() { o.tell(path) })
	}
}

// tell tells what is owed last, until it is heard.
func (o *owedWords) tell(path string) {
	var told owedWord
	since, wait := time.Now(), owedEvery
	for {
		o.mu.Lock()
		w, owed := o.by[path]
		o.mu.Unlock()
		if !owed {
			return
		}
		if !w.equal(told) {
			told, since, wait = w, time.Now(), owedEvery
		}
		err := o.ask(o.ctx, w.Host, w.Ask)
		var refused *migration.Problem
		if err == nil || errors.As(err, &refused) && time.Since(since) > owedRefused {
			if o.settle(path, w) {
				return
			}
			continue
		}
		o.log("tell a subnet agent again", "host", w.Host, "guest", w.Ask.Guest, "step", w.Ask.Step, "error", err)
		if !sleep(o.ctx, wait) {
			return
		}
		wait = min(2*wait, owedRarely)
	}
}

// settle forgets a word, and says whether there is no later one.
func (o *owedWords) settle(path string, w owedWord) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if last, owed := o.by[path]; owed && !last.equal(w) {
		return false
	}
	delete(o.by, path)
	if err := statefile.Remove(path); err != nil {
		o.log("forget what a subnet agent was owed", "error", err)
	}
	return true
}

// forget is before the subnet agent is asked for the guest anew: what it was owed is out of date.
func (o *owedWords) forget(host, guest string) {
	path := o.path(host, guest)
	o.mu.Lock()
	w, owed := o.by[path]
	o.mu.Unlock()
	if owed {
		o.settle(path, w)
	}
}

// resume goes on telling what an earlier agent could not tell.
func (o *owedWords) resume() {
	paths, err := statefile.Files(o.dir)
	if err != nil {
		o.log("words to subnet agents", "error", err)
	}
	for _, path := range paths {
		var w owedWord
		if err := statefile.Read(path, &w); err != nil || path != o.path(w.Host, w.Ask.Guest) {
			o.log("a word to a subnet agent cannot be read", "file", path, "error", err)
			continue
		}
		o.mu.Lock()
		o.begin(path, w)
		o.mu.Unlock()
	}
}
